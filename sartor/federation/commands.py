"""`sartor federation`, `sartor server`, `sartor client`: what they do. Their options are in cli/federation.py."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from ..errors import SartorError, need
from ..storage import read_json, read_note
from . import audit_log
from .kits import KIT, Kit
from .nvflare_jobs import PLACE, RUN, STATUS
from .privacy_ledger import DELTA, spent_in_all
from .server import ROSTER


def status(folder: Path) -> dict[str, Any]:
    """Where a kit's run is."""
    kit = _any(folder)
    place = folder / PLACE
    found: dict[str, Any] = {"federation": kit.federation, "who": kit.who, "server": f"{kit.host}:{kit.port}"}
    if not (place / STATUS).exists():
        return found | {"state": "not started"}
    found |= read_json(place / STATUS)
    if kit.who != "server" and (account := spent_in_all(place)):
        found["epsilon"] = account
    if kit.who == "server" and (place / RUN / ROSTER).exists():
        found["sites"] = {s: len(v["counts"]) for s, v in read_json(place / RUN / ROSTER)["sites"].items()}
    return found


def words(found: dict[str, Any]) -> str:
    """The same for people."""
    who = "the server" if found["who"] == "server" else f"site {found['who']}"
    lines = [f"{who} of {found['federation']} ({found['server']}): {found['state']}"]
    if "round" in found:
        lines[0] += f", round {found['round']} of {found['rounds']}"
    if "time" in found:
        lines[0] += f", {max(0, time.time() - found['time']):.0f} s ago"
    for client, spent in found.get("epsilon", {}).items():
        lines.append(f"  client {client}: epsilon {spent:.3g} spent in all runs, at delta {DELTA:g}")
    for site, clients in found.get("sites", {}).items():
        away = found.get("silent", {}).get(site, 0)
        lines.append(
            f"  {site}: {clients} client{'s' if clients > 1 else ''}{f', silent {away} times' if away else ''}"
        )
    for name in ("counts", "refusals"):
        some = {k: v for k, v in found.get(name, {}).items() if v}
        if some:
            lines.append(f"  {name}: " + ", ".join(f"{k} {v}" for k, v in some.items()))
    return "\n".join(lines)


def audit(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """A site's audit log, verified, and what is said of it."""
    kit = _any(folder)
    need(kit.who != "server", f"{folder} is the server's kit; audit logs are at the sites.")
    lines = audit_log.verified(folder / PLACE)
    last = f"{len(lines)} lines, unbroken from the first to the last, whose hash is {lines[-1]['hash']}"
    return lines, "\n".join([*map(audit_log.words, lines), last])


def export(folder: Path, out: Path) -> list[str]:
    """Copy a kit's models: at the server the global one, at a site its clients' own. What was copied, in words."""
    kit = _any(folder)
    models = folder / PLACE / (RUN + "/models" if kit.who == "server" else "models")
    files = sorted(models.glob("*.safetensors"))
    what = "global model (this method may have none)" if kit.who == "server" else "personal models"
    need(bool(files), f"{folder} holds no {what} yet; they are written when the run is finished.")
    need(not out.exists() or not any(out.iterdir()), f"{out} is not empty; choose another folder.")
    out.mkdir(parents=True, exist_ok=True)
    said = []
    for path in files:
        try:
            shutil.copyfile(path, out / path.name)
        except OSError as e:
            raise SartorError(f"cannot write {out}: {e.strerror}.") from e
        about = read_note(path)
        said.append(f"{out / path.name}" + (f": client {about['client']}" if "client" in about else ""))
    return said


def _any(folder: Path) -> Kit:
    need((folder / KIT).is_file(), f"{folder} is not a kit: it has no {KIT}. Make kits with sartor federation init.")
    return Kit.load(folder, "server" if read_json(folder / KIT).get("who") == "server" else "site")
