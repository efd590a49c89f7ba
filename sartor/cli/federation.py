"""`sartor federation`, `server`, `client`: a federation of real sites."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import need, one_of, printable
from ..federation.limits import LIMITS
from .console import app, out
from .federation_group import federation
from .federation_group import needs_nvflare as _needs_nvflare
from .options import Json, takes

KitFolder = Annotated[Path, typer.Argument(help="a folder made by sartor federation init or join")]
WorkFolder = Annotated[Path, typer.Argument(help="a kit, or a folder in which a server or site works")]
HealthPort = Annotated[
    int | None, typer.Option(help="answer /healthz and /metrics on this port of 127.0.0.1  [not]", show_default=False)
]
HealthLinger = Annotated[float, typer.Option(help="seconds for which these still answer after the end")]
LogFormat = Annotated[str, typer.Option("--log", help="what is said meanwhile: text, or json (a line for each event)")]


def _saying(as_json: bool) -> Callable[[str], None]:
    """Where a federation says what happens: beside the result, where that is to be read by a program."""
    return lambda text: print(printable(text), file=sys.stderr if as_json else sys.stdout, flush=True)


def _as_events(log: str) -> bool:
    one_of("sartor", "--log", log, ("text", "json"))
    return log == "json"


@federation.command("init")
def federation_init(
    name: Annotated[str, typer.Option(help="what the federation is called")],
    server: Annotated[str, typer.Option(help="HOST:PORT at which sites reach the server")],
    sites: Annotated[str, typer.Option(help="the sites' names, separated by commas")],
    folder: Annotated[Path, typer.Option("--out", help="a new folder for the kits")],
    days: Annotated[int, typer.Option(help="days for which the kits' certificates are valid, 1 to 36500")] = 360,
    requests: Annotated[
        bool, typer.Option("--requests", help="make an authority only: server and sites make their own keys")
    ] = False,
) -> None:
    """Make a kit for the server and one for each site: certificates, keys and restrictive settings."""
    _needs_nvflare()
    from ..federation import handout, kits

    named = [s.strip() for s in sites.split(",")]
    kits.make(name, server, named, folder, days, requests)
    out.print(handout.words(name, server, named, requests), soft_wrap=True, end="", highlight=False)


@federation.command("status")
def federation_status(kit: KitFolder, as_json: Json = False) -> None:
    """Show the progress of a kit's run."""
    _needs_nvflare()
    from ..federation import commands

    found = commands.status(kit)
    print(json.dumps(found, indent=1) if as_json else printable(commands.words(found)))


@federation.command("audit")
def federation_audit(kit: KitFolder, as_json: Json = False) -> None:
    """Read and verify a site's audit log: what was asked of it, and what left."""
    _needs_nvflare()
    from ..federation import commands

    lines, said = commands.audit(kit)
    print(json.dumps(lines, indent=1) if as_json else printable(said))


@federation.command("export")
def federation_export(
    kit: KitFolder,
    folder: Annotated[Path, typer.Option("--out", help="a new folder for the models")],
    as_json: Json = False,
) -> None:
    """Copy a kit's models: the global model at the server, personal models at a site."""
    _needs_nvflare()
    from ..federation import commands

    lines = commands.export(kit, folder)
    print(json.dumps(lines, indent=1, ensure_ascii=False) if as_json else printable("\n".join(lines)))


@federation.command("backup")
def federation_backup(
    work: WorkFolder,
    file: Annotated[Path, typer.Option("--out", help="a new file for the backup")],
) -> None:
    """Save the state of a server or site: checkpoints, ledgers, audit log, models.

    It may run meanwhile. Keys and logs are not saved.
    """
    _needs_nvflare()
    from ..federation.backup import back_up

    print(printable(back_up(work, file)))


@federation.command("restore")
def federation_restore(
    file: Annotated[Path, typer.Argument(help="a file made by sartor federation backup")],
    work: Annotated[Path, typer.Option("--out", help="the kit, or the work folder, that gets the state")],
    nothing_since: Annotated[
        bool, typer.Option("--nothing-since", help="I know that the site has answered nothing after the backup")
    ] = False,
) -> None:
    """Put the state of a server or site back, never an older ledger or audit log over a newer one."""
    _needs_nvflare()
    from ..federation.backup import restore

    print(printable(restore(file, work, nothing_since)))


@app.command()
def server(
    kit: KitFolder,
    recipe: Annotated[Path, typer.Option(help="a recipe.toml: the method, its settings, the rounds")],
    min_clients: Annotated[
        int, typer.Option(help="answers needed in a round; with fewer it waits, then is skipped")
    ] = 2,
    round_timeout: Annotated[float, typer.Option(help="seconds to wait for one round's answers")] = 120.0,
    leave_out_after: Annotated[
        int, typer.Option(help="timeouts in a row after which the server no longer waits for a site")
    ] = 3,
    join_timeout: Annotated[float, typer.Option(help="seconds to wait for all sites before the first round")] = 600.0,
    health_port: HealthPort = None,
    health_linger: HealthLinger = 0.0,
    log: LogFormat = "text",
    as_json: Json = False,
) -> None:
    """Run the server of a federation.

    After a crash, start it again: it continues, with identical results.
    """
    _needs_nvflare()
    from ..federation.health_port import served
    from ..federation.rounds import Waiting
    from ..federation.supervise_server import ServerSupervisor
    from ..report import terminal
    from ..storage import read_json

    waiting = Waiting(round_timeout, min_clients, leave_out_after)
    supervisor = ServerSupervisor(kit, recipe, waiting, join_timeout, _saying(as_json), _as_events(log))
    with served(supervisor.health, health_port, health_linger):
        left = supervisor.play()
        rows, found = read_json(left / "clients.json"), read_json(left / "summary.json")
        if as_json:
            print(json.dumps(found, indent=1), flush=True)
        elif log == "text":
            out.print(terminal.per_client(rows))
            out.print(terminal.one_line(found))
            out.print(f"everything is in {left}; personal models are at the sites", soft_wrap=True)


@app.command()
@takes("data", only=("target", "client_key", "leave_out", "text", "task"), also=LIMITS)
def client(
    ctx: typer.Context,
    kit: KitFolder,
    data: Annotated[str, typer.Option(help="this site's .csv, .parquet or .npz file; it never leaves the site")],
    recipe: Annotated[Path | None, typer.Option(help="take part only if the server's recipe equals this one")] = None,
    share: Annotated[
        str | None,
        typer.Option(help="which scores are sent: metrics=each, mean (over this site) or none  [metrics=each]"),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="a TOML file with this site's limits, and share = each, mean or none")
    ] = None,
    connect_timeout: Annotated[float, typer.Option(help="seconds to try to reach the server")] = 600.0,
    proxy: Annotated[
        str | None, typer.Option(help="go through this proxy, http://HOST:PORT  [HTTPS_PROXY's, if there is one]")
    ] = None,
    health_port: HealthPort = None,
    health_linger: HealthLinger = 0.0,
    log: LogFormat = "text",
    as_json: Json = False,
) -> None:
    """Take part in a federation with this site's data.

    After a crash, start it again: it continues, with identical results.
    """
    _needs_nvflare()
    from ..federation.health_port import served
    from ..federation.limits import SiteLimits
    from ..federation.limits import policy as read_policy
    from ..federation.site_config import SiteConfig
    from ..federation.supervise_site import SiteSupervisor

    what, _, value = (share or "metrics=each").partition("=")
    need(what == "metrics", f"--share takes metrics=each, mean or none; got {share!r}.")
    path = None if recipe is None else str(recipe.resolve())
    given = ctx.params
    leave_out, text = (tuple(given[name] or ()) for name in ("leave_out", "text"))
    limits = SiteLimits(**{name: given[name] for name in LIMITS})
    if policy is not None:
        options = {name: given[name] for name, about in LIMITS.items() if given[name] != about.default}
        limits, allowed = read_policy(policy, options)
        need(allowed is None or share is None, f"share stands in {policy} and is given as an option; say it once.")
        value = allowed or value
    own = SiteConfig(
        str(Path(data).resolve()),
        given["target"],
        given["client_key"],
        value,
        path,
        leave_out,
        text,
        limits,
        given["task"],
    )
    supervisor = SiteSupervisor(kit, own, connect_timeout, _saying(as_json), proxy, _as_events(log))
    with served(supervisor.health, health_port, health_linger):
        left = supervisor.play()
        if as_json or log == "text":
            print(
                json.dumps({"models": str(left)}) if as_json else f"finished: this site's models are in {left}",
                flush=True,
            )


from . import federation_keys as _keys  # noqa: E402, F401  # the group's further commands, named after these
