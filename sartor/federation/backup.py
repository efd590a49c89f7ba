"""`sartor federation backup` and `restore`: the state of a server or a site in one file, with a checksum of each part.

A backup is a moment: all files as they were at one instant, whoever writes meanwhile. That is a state in which a kill
could have left the folder, so a run goes on from it. It holds states, checkpoints, ledgers, the audit log and models;
not the kit's keys, and no logs.

What a site has spent of its clients' privacy, and what has left it, is never taken back. A folder whose ledger or audit
log says more than the backup is not replaced. Where nothing says what happened since, every run counts as if it had
been played to its agreed end; a round that is then played again counts once more.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from typing_extensions import TypedDict

from .. import __version__
from ..errors import SartorError, need, reason
from ..storage import read_json, replacing, shaped, sync_folder
from .audit_log import AUDIT, AuditLog, verified
from .kits import KIT
from .logs import EVENTS
from .nvflare_jobs import LOG, OWN, PLACE, PLAN, RUN, STATUS
from .privacy_ledger import charge_to_the_end, later
from .rounds.client_store import alone
from .server import ROSTER
from .site import WELCOME
from .site_runs import SEAT

MANIFEST, _FILES = "manifest.json", "files/"
_TRIES = 20  # to copy a folder in which nothing changes meanwhile
_MARKS = (STATUS, PLAN, OWN, SEAT, ROSTER, f"{RUN}/{ROSTER}")  # what only a work folder has
_LOGS = (LOG, EVENTS, "daemon.txt")
_CHUNK = 1 << 20


class SavedFile(TypedDict):
    """One file of a backup."""

    bytes: int
    sha256: str


class Manifest(TypedDict):
    """What a backup says about itself."""

    format: Literal[1]
    sartor: str
    federation: str
    who: str
    time: str
    files: dict[str, SavedFile]


def back_up(folder: Path, out: Path) -> str:
    """Write the state in a kit or work folder to a new file. What was written, in words."""
    place, federation, who = _work(folder)
    need(not out.exists(), f"{out} is there already; choose another file.")
    need(any((place / mark).exists() for mark in _MARKS), f"{folder} is not a work folder: no run was ever in it.")
    with replacing(out) as temporary:
        temporary.touch(0o600)
        for _ in range(_TRIES):
            before = _scan(place)
            try:
                manifest = _written(temporary, place, sorted(before), federation, who)
            except FileNotFoundError:
                continue  # replaced meanwhile
            if _scan(place) == before:
                break
        else:
            raise SartorError(f"{place} changes faster than it can be copied. Stop the process that works there first.")
    size = sum(part["bytes"] for part in manifest["files"].values())
    said = f"{out}: {len(manifest['files'])} files, {size} bytes of {_name(manifest)}"
    if AUDIT in manifest["files"]:
        lines = verified(place)
        said += f"; audit log of {len(lines)} lines, the last with hash {lines[-1]['hash']}"
    return said


def restore(file: Path, out: Path, nothing_since: bool = False) -> str:
    """Put a backup in the place of a kit's or another work folder. What was done, in words.

    `nothing_since`: somebody knows that the site has answered nothing after the backup.
    """
    with _opened(file) as archive, ExitStack() as held:
        manifest = _manifest(archive, file)
        place, federation, who = _work(out)
        mine = (federation, who) in (("", ""), (manifest["federation"], manifest["who"]))
        need(mine, f"{file} is a backup of {_name(manifest)}; {out} is the kit of {who} of {federation}.")
        there = place.exists() and any(place.iterdir())
        known = not there or bool(who) or any((place / mark).exists() for mark in _MARKS)
        need(known, f"{out} is not a work folder and is not empty; choose another folder.")
        if there:
            _hold(place, held)
        part = place.with_name(f".{place.name}.restoring")
        shutil.rmtree(part, ignore_errors=True)
        try:
            _unpack(archive, manifest, file, part)
            said = [f"{place}: {len(manifest['files'])} files of {_name(manifest)}, as of {manifest['time']}"]
            said += _settle(place, part, manifest, nothing_since)
            said += _swap(place, part)
        except OSError as e:
            raise SartorError(f"cannot restore to {place}: {reason(e)}. What was there before is unharmed.") from e
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return "\n".join(said)


def _work(folder: Path) -> tuple[Path, str, str]:
    """The work folder in a kit, or this one; of which federation, and whose ("": it does not say)."""
    if not (folder / KIT).is_file():
        return folder, "", ""
    kit = read_json(folder / KIT)
    return folder / PLACE, str(kit["federation"]), str(kit["who"])


def _name(manifest: Manifest) -> str:
    who = manifest["who"]
    whose = "a work folder" if not who else "the server" if who == "server" else f"site {who}"
    return whose + (f" of {manifest['federation']}" if who else "")


# --- writing ----------------------------------------------------------------------------------------------------------


def _scan(place: Path) -> dict[str, tuple[int, int, int]]:
    """The files that make up the state, and what changes when one is written: writes replace a file or extend it."""
    found = {}
    for path in place.rglob("*"):
        name = path.relative_to(place)
        top = name.parts[0]
        log = len(name.parts) == 1 and any(top in (log, f"{log}.1") for log in _LOGS)
        if log or top.startswith("job-") or name.name.startswith("."):
            continue
        try:
            about = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(about.st_mode):
            found[name.as_posix()] = about.st_ino, about.st_mtime_ns, about.st_size
    return found


def _written(target: Path, place: Path, names: list[str], federation: str, who: str) -> Manifest:
    files: dict[str, SavedFile] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            with (place / name).open("rb") as source, archive.open(_FILES + name, "w", force_zip64=True) as copy:
                files[name] = _copied(source, copy)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        manifest: Manifest = {
            "format": 1,
            "sartor": __version__,
            "federation": federation,
            "who": who,
            "time": now,
            "files": files,
        }
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
    return manifest


def _copied(source: IO[bytes], copy: IO[bytes]) -> SavedFile:
    digest, size = hashlib.sha256(), 0
    while data := source.read(_CHUNK):
        digest.update(data)
        copy.write(data)
        size += len(data)
    return {"bytes": size, "sha256": digest.hexdigest()}


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except OSError as e:
        raise SartorError(f"cannot read {file}: {reason(e)}.") from e
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as e:
        raise SartorError(f"{file} is damaged or no backup: {e}. Nothing was changed; take another copy.") from e


def _manifest(archive: zipfile.ZipFile, file: Path) -> Manifest:
    try:
        found: Any = json.loads(archive.read(MANIFEST))
    except (KeyError, ValueError) as e:
        raise SartorError(f"{file} is damaged or no backup: it has no {MANIFEST} that can be read.") from e
    later = isinstance(found, Mapping) and found.get("format") not in (None, 1)
    need(not later, f"{file} was made by a later version of Sartor; this is {__version__}. Restore it with that one.")
    manifest: Manifest = shaped(found, Manifest, f"{file}: {MANIFEST}")
    names = {_FILES + name for name in manifest["files"]} | {MANIFEST}
    need(
        set(archive.namelist()) == names
        and len(archive.namelist()) == len(names)
        and all(map(_inside, manifest["files"])),
        f"{file} is damaged: it holds other files than it lists. Nothing was changed; take another copy.",
    )
    return manifest


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name and path.as_posix() == name != "."


def _unpack(archive: zipfile.ZipFile, manifest: Manifest, file: Path, part: Path) -> None:
    """Every file, each with the checksum that it had."""
    for name, about in manifest["files"].items():
        path = part / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        damaged = f"{file} is damaged: {name} is not what was saved. Nothing was changed; take another copy."
        need(archive.getinfo(_FILES + name).file_size == about["bytes"], damaged)
        with archive.open(_FILES + name) as source, path.open("xb") as copy:
            try:
                same = _copied(source, copy) == about
            except zipfile.BadZipFile as e:
                raise SartorError(damaged) from e
            need(same, damaged)
            copy.flush()
            os.fsync(copy.fileno())
        path.chmod(0o600)


def _hold(place: Path, held: ExitStack) -> None:
    """Nobody may work in a folder that is replaced."""
    for folder in (place / "server", place / "client", place):
        if folder.is_dir():
            held.enter_context(alone(folder, f"a process works in {place}; stop it first."))


def _settle(place: Path, part: Path, manifest: Manifest, nothing_since: bool) -> list[str]:
    """Nothing that is known to be spent, or to have left, is forgotten; what nobody knows counts as if it were."""
    kept = f"{place} is newer than the backup of {manifest['time']}"
    more = later(place, part)
    who = f"{len(more)} client{'s' if len(more) != 1 else ''}"
    need(not more, f"{kept}, which would take back what {who} spent in its ledger of privacy. Keep what is there.")
    saved, there = ((folder / AUDIT).read_bytes() if (folder / AUDIT).exists() else b"" for folder in (part, place))
    need(saved.startswith(there), f"{kept}, or another site's: its audit log has other lines. Keep what is there.")
    if not saved:
        return []
    verified(part)
    charged = 0 if saved == there or nothing_since else charge_to_the_end(part, _agreed_rounds(part))
    AuditLog(part).add({"asked": {"what": "restore", "of": manifest["time"]}, "left": {"what": "nothing"}})
    who = f"{charged} client{'s' if charged != 1 else ''}"
    text = f"what {who} spent since is not known: each run counts as played to its end (--nothing-since: it does not)"
    return [text] if charged else []


def _agreed_rounds(part: Path) -> dict[str, int]:
    """By run: how many rounds this site agreed to."""
    return {path.parent.name: int(read_json(path)["recipe"]["rounds"]) for path in part.glob(f"*/{WELCOME}")}


def _swap(place: Path, part: Path) -> list[str]:
    """The new folder takes the old one's place; the old one is kept beside it."""
    said = []
    if place.exists():
        number = 1
        while (aside := place.with_name(f"{place.name}.before-{number}")).exists():
            number += 1
        os.rename(place, aside)
        said = [f"what was there before is in {aside}"] if any(aside.iterdir()) else []
    place.parent.mkdir(parents=True, exist_ok=True)
    os.rename(part, place)
    sync_folder(place.parent)
    return said
