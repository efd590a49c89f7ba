"""The two apps that a Flower run names: the server's reads the run's configuration, a site's that of its own node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import SartorError, need, readable
from ..run.recipe import Recipe
from .limits import LIMITS, SiteLimits
from .masks import Identity, authority_of
from .revocation import NOBODY, in_use
from .rounds.remote_engine import Transport, Waiting
from .server import Coordinator
from .site import Participant
from .site_config import SiteConfig
from .transports.flower import client_app, server_app
from .work_folder import RUN, Speaker, patiently, play

_SERVER = (
    "folder",
    "recipe",
    "sites",
    "min-clients",
    "round-timeout",
    "leave-out-after",
    "join-timeout",
    "ask-again",
    "kit",
)
_SITE = (
    "site",
    "folder",
    "data",
    "target",
    "client-key",
    "text",
    "task",
    "share",
    "recipe",
    "kit",
    *(k.replace("_", "-") for k in LIMITS),
)


def _lead(transport: Callable[..., Transport], config: Mapping[str, Any]) -> None:
    """Play the run that lies in the folder, from its beginning or its last checkpoint."""
    given = _known(config, _SERVER, ("folder", "recipe", "sites"), "the run's configuration (flwr run -c)")
    place = _absolute(given["folder"])
    speak = Speaker(place)

    def say(text: str) -> None:
        speak(text)
        print(readable(text, 1000), flush=True)

    waiting = Waiting(
        seconds=float(given.get("round-timeout", 300.0)),
        clients=int(given.get("min-clients", 2)),
        timeouts=int(given.get("leave-out-after", 3)),
        again=float(given.get("ask-again", 30.0)),
    )
    kit = _absolute(given["kit"]) if "kit" in given else None
    authority = None if kit is None else authority_of(kit)
    lead = Coordinator(
        name="flower",
        folder=place / RUN,
        recipe=Recipe.load(_absolute(given["recipe"])),
        sites=[s.strip() for s in str(given["sites"]).split(",")],
        transport=transport(waiting.seconds / 2, say),
        waiting=waiting,
        say=say,
        joining=float(given.get("join-timeout", 600.0)),
        authority=authority,
        revoked=NOBODY if kit is None or authority is None else in_use(kit, authority),
        again=waiting.again,
    )
    try:
        play(lead, place)
    except SartorError as e:
        say(str(e))
        raise
    say(f"finished: everything is in {place / RUN}; personal models are at the sites")


def _site(config: Mapping[str, Any]) -> tuple[str, Callable[[bytes], bytes]]:
    """A site whose states lie in its own folder. Every message finds it in a new process."""
    given = _known(config, _SITE, ("site", "folder", "data"), "the node's configuration (--node-config)")
    name, place = str(given["site"]), _absolute(given["folder"])
    texts = {k: None if k not in given else str(given[k]) for k in ("target", "client-key", "recipe")}
    limits = {k: given[k.replace("_", "-")] for k in LIMITS if k.replace("_", "-") in given}
    columns = texts["target"], texts["client-key"]
    share, task = str(given.get("share", "each")), str(given.get("task", "auto"))
    text = tuple(filter(None, str(given.get("text", "")).split(",")))
    own = SiteConfig(str(given["data"]), *columns, share, texts["recipe"], (), text, SiteLimits(**limits), task)

    identity = Identity.load(_absolute(given["kit"]), name) if "kit" in given else None

    def answer(request: bytes) -> bytes:
        with patiently(place, "another process answers for this site"):
            return Participant(name, place, own, log=Speaker(place), identity=identity).answer(request)

    return name, answer


def _known(config: Mapping[str, Any], names: tuple[str, ...], needed: tuple[str, ...], what: str) -> dict[str, Any]:
    missing = [n for n in needed if not config.get(n)]
    need(not missing, f"{what} lacks {', '.join(missing)}; it may have {', '.join(names)}.")
    return {k: v for k, v in config.items() if k in names and v != ""}


def _absolute(path: object) -> Path:
    """Flower's processes work in folders of their own, so only whole paths are taken."""
    found = Path(str(path))
    need(found.is_absolute(), f"{found} must be an absolute path: Flower starts processes in other folders.")
    return found


server = server_app(_lead)
client = client_app(_site)
