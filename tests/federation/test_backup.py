"""Backups: one instant of a folder, every byte checked, and nothing that was spent or has left is ever forgotten."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import commandline
import pytest
from sites import NAMES, QUICK, Federation, vectors

pytest.importorskip("nvflare")

from sartor.errors import SartorError
from sartor.federation import backup
from sartor.federation.audit_log import AUDIT, verified
from sartor.federation.backup import back_up, restore
from sartor.federation.kits import KIT
from sartor.federation.privacy_ledger import LEDGER, spent_in_all
from sartor.federation.rounds.client_store import alone
from sartor.run.privacy_account import composed_epsilon
from sartor.run.recipe import Recipe
from sartor.storage import write_json

PRIVATE = Recipe(method="flame", **QUICK, dp_noise=2.0, dp_where="client")


def played(fed: Federation, rounds: int) -> None:
    """As if everything was killed after so many rounds."""
    for result in fed.lead(fed.calls()).play():
        if result.run.round == rounds:
            return


def contents(folder: Path) -> dict[str, bytes]:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != ".lock"]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, paths: dict[str, Path]) -> Path:
    folder = tmp_path_factory.mktemp("once")
    played(Federation(folder / "fed", PRIVATE, paths), 1)
    back_up(folder / "fed" / "b", folder / "b.backup")
    return folder


@pytest.fixture
def site(once: Path, tmp_path: Path, paths: dict[str, Path]) -> tuple[Federation, Path]:
    """A private federation after one of its three rounds, and a backup of its site b."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return Federation(tmp_path / "fed", PRIVATE, paths), tmp_path / "b.backup"


def test_a_run_goes_on_from_backups_to_the_same_bytes(
    flame: Federation, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    played(flame, 2)
    for name in ("server", *NAMES):
        (flame.folder / name / "log.txt").write_text("not a state")
        said = back_up(flame.folder / name, tmp_path / f"{name}.backup")
        assert ("audit log of" in said) == (name != "server")
        assert (tmp_path / f"{name}.backup").stat().st_mode & 0o777 == 0o600
    before = contents(flame.folder / "server")
    shutil.rmtree(flame.folder)
    for name in ("server", *NAMES):
        restore(tmp_path / f"{name}.backup", flame.folder / name)
    assert contents(flame.folder / "server") == {k: v for k, v in before.items() if k != "log.txt"}
    flame.play()
    assert vectors(flame.folder) == undisturbed
    assert [line["asked"]["what"] for line in verified(flame.folder / "a")].count("restore") == 1


def test_a_backup_is_one_instant_though_the_folder_changes_meanwhile(site: tuple[Federation, Path]) -> None:
    """The site answers in the middle of the first try: a ledger of one moment with a log of another would be wrong."""
    fed, file = site
    copied, changes = backup._copied, list[str]()

    def busy(source: object, copy: object) -> object:
        if not changes:
            changes.append("now")
            played(fed, 2)
        return copied(source, copy)  # type: ignore[arg-type]

    hot = file.with_name("hot.backup")
    with mock.patch.object(backup, "_copied", busy):
        back_up(fed.folder / "b", hot)
    restore(hot, file.with_name("found"), nothing_since=True)
    there, found = contents(fed.folder / "b"), contents(file.with_name("found"))
    assert found.pop(AUDIT).startswith(there.pop(AUDIT)) and found == there


def test_a_folder_that_never_rests_is_not_saved_by_halves(site: tuple[Federation, Path]) -> None:
    fed, file = site
    copied, count = backup._copied, iter(range(10**6))

    def restless(source: object, copy: object) -> object:
        write_json(fed.folder / "b" / "status.json", next(count))
        return copied(source, copy)  # type: ignore[arg-type]

    out = file.with_name("hot.backup")
    with mock.patch.object(backup, "_copied", restless), pytest.raises(SartorError, match="changes faster than"):
        back_up(fed.folder / "b", out)
    assert not out.exists() and not list(out.parent.glob(".*.part"))


def test_a_newer_ledger_or_audit_log_is_never_replaced(site: tuple[Federation, Path]) -> None:
    fed, file = site
    played(fed, 2)
    before = contents(fed.folder / "b")
    with pytest.raises(
        SartorError, match=r"is newer than the backup of .* take back what 1 client spent in its ledger"
    ):
        restore(file, fed.folder / "b")
    (fed.folder / "b" / LEDGER).unlink()
    with pytest.raises(SartorError, match=r"is newer than the backup of .* its audit log has other lines"):
        restore(file, fed.folder / "b", nothing_since=True)
    (fed.folder / "b" / LEDGER).write_bytes(before[LEDGER])
    assert contents(fed.folder / "b") == before


@pytest.mark.parametrize(("since", "messages"), [(False, 3), (True, 1)])
def test_after_a_lost_disk_what_nobody_knows_counts_as_spent(
    since: bool, messages: int, site: tuple[Federation, Path]
) -> None:
    """One of three rounds was played at the backup. Two more may have been: noise was drawn for them that is lost."""
    fed, file = site
    shutil.rmtree(fed.folder / "b")
    said = restore(file, fed.folder / "b", nothing_since=since)
    assert ("counts as played to its end" in said) == (not since)
    assert spent_in_all(fed.folder / "b") == {"0": composed_epsilon([(2.0, 1.0, messages)], 1e-5)}
    fed.play()  # rounds that are played now are further messages
    assert spent_in_all(fed.folder / "b") == {"0": composed_epsilon([(2.0, 1.0, messages + 2)], 1e-5)}


def test_a_folder_that_is_as_it_was_saved_is_charged_nothing_and_kept_aside(site: tuple[Federation, Path]) -> None:
    fed, file = site
    place = fed.folder / "b"
    (place / "run.json").write_text("damaged")
    said = restore(file, place)
    assert "counts as played" not in said and (fed.folder / "b.before-1" / "run.json").read_text() == "damaged"
    assert spent_in_all(place) == {"0": composed_epsilon([(2.0, 1.0, 1)], 1e-5)}
    assert json.loads((place / "run.json").read_text())["run"]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "text": lambda data: b"no backup at all",
    "a flipped bit in the log": lambda data: flipped(data, data.index(b'"line": 1') + 12),
    "a flipped bit in a state": lambda data: flipped(data, data.index(b"safetensors") + 200),
    "a flipped bit in the manifest": lambda data: flipped(data, data.index(b'"format"') + 4),
}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_backup_changes_nothing(damage: str, site: tuple[Federation, Path]) -> None:
    fed, file = site
    before = contents(fed.folder)
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    with pytest.raises(SartorError, match="damaged"):
        restore(file, fed.folder / "b")
    with pytest.raises(SartorError, match="damaged"):
        restore(file, fed.folder / "new")
    assert contents(fed.folder) == before


def test_a_whole_archive_with_another_ledger_is_found(site: tuple[Federation, Path]) -> None:
    fed, file = site
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[f"files/{LEDGER}"] = parts[f"files/{LEDGER}"].replace(b'"messages": 1', b'"messages": 0')
    with zipfile.ZipFile(file, "w") as archive:  # a whole archive: only the manifest knows better
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(SartorError, match=rf"is damaged: {LEDGER} is not what was saved"):
        restore(file, fed.folder / "new")


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside"])
def test_no_file_is_written_outside_the_folder(name: str, tmp_path: Path) -> None:
    file = tmp_path / "evil.backup"
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    manifest = {"format": 1, "sartor": "0.1.0", "federation": "", "who": "", "time": "now"}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"files/{name}", b"")
        archive.writestr("manifest.json", json.dumps(manifest | {"files": {name: {"bytes": 0, "sha256": empty}}}))
    with pytest.raises(SartorError, match="damaged"):
        restore(file, tmp_path / "in" / "place")
    assert {p.name for p in tmp_path.rglob("*")} == {"evil.backup"}


def test_wrong_folders_and_files_are_refused_in_a_line(site: tuple[Federation, Path], tmp_path: Path) -> None:
    fed, file = site
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(SartorError, match="other is not a work folder: no run was ever in it"):
        back_up(other, tmp_path / "x")
    with pytest.raises(SartorError, match="is there already; choose another file"):
        back_up(fed.folder / "b", file)
    with pytest.raises(SartorError, match=r"cannot read .*none.backup: No such file"):
        restore(tmp_path / "none.backup", tmp_path / "new")
    (other / "holiday.jpg").write_text("mine")
    with pytest.raises(SartorError, match="is not a work folder and is not empty"):
        restore(file, other)
    with alone(fed.folder / "b", "busy"), pytest.raises(SartorError, match=r"a process works in .*; stop it first"):
        restore(file, fed.folder / "b")
    with pytest.raises(SartorError, match=r"is newer than the backup of .*, or another site's"):
        restore(file, fed.folder / "c")
    manifest = contents(other)
    assert manifest == {"holiday.jpg": b"mine"}


def test_a_kit_takes_its_own_backup_only(site: tuple[Federation, Path], tmp_path: Path) -> None:
    """In a kit the state is in play/, and the backup says whose it is."""
    fed, _ = site
    kits = {name: tmp_path / "kits" / name for name in ("b", "c")}
    for name, kit in kits.items():
        kit.mkdir(parents=True)
        write_json(kit / KIT, {"federation": "trial", "who": name})
        (fed.folder / name).rename(kit / "play")
    said = back_up(kits["b"], tmp_path / "kit.backup")
    assert "of site b of trial" in said
    with pytest.raises(SartorError, match=r"is a backup of site b of trial; .* is the kit of c of trial"):
        restore(tmp_path / "kit.backup", kits["c"])
    shutil.rmtree(kits["b"] / "play")
    restore(tmp_path / "kit.backup", kits["b"], nothing_since=True)
    assert spent_in_all(kits["b"] / "play") == {"0": composed_epsilon([(2.0, 1.0, 1)], 1e-5)}


def test_a_backup_of_a_later_version_says_so(site: tuple[Federation, Path]) -> None:
    fed, file = site
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["manifest.json"] = parts["manifest.json"].replace(b'"format": 1', b'"format": 2')
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(SartorError, match="was made by a later version of Sartor; this is"):
        restore(file, fed.folder / "new")


def test_from_the_command_line(site: tuple[Federation, Path], tmp_path: Path) -> None:
    fed, _ = site
    done = commandline.sartor("federation", "backup", fed.folder / "b", "--out", tmp_path / "new.backup")
    last = verified(fed.folder / "b")[-1]["hash"]
    assert done.code == 0 and f"the last with hash {last}" in done.out
    played(fed, 2)
    line = commandline.refused("federation", "restore", tmp_path / "new.backup", "--out", fed.folder / "b")
    assert "would take back what 1 client spent in its ledger of privacy. Keep what is there." in line
    moved = ("federation", "restore", tmp_path / "new.backup", "--out", tmp_path / "moved", "--nothing-since")
    assert commandline.sartor(*moved).code == 0 and (tmp_path / "moved" / LEDGER).exists()
    (tmp_path / "new.backup").write_bytes(b"")
    assert "is damaged or no backup" in commandline.refused(*moved[:-1])
    none = commandline.refused("federation", "backup", tmp_path / "nowhere", "--out", tmp_path / "x")
    assert "nowhere is not a work folder" in none
