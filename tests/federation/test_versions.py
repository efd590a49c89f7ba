"""The upgrade rule: folders of the version before are continued, and two versions never work together."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from sites import NAMES, Federation, numbers
from stored_runs import PLAIN, PLAYED, PRIVATE, ROUNDS, STORED

from sartor.errors import SartorError
from sartor.federation.audit_log import verified
from sartor.federation.privacy_ledger import spent_in_all
from sartor.federation.rounds import Damaged, Message, decode, encode
from sartor.run import versions
from sartor.run.privacy_account import composed_epsilon
from sartor.storage import read_json, write_json


def federation(version: str, folder: Path, name: str = "plain") -> Federation:
    """A stored federation, copied."""
    shutil.copytree(STORED / version / name, folder, dirs_exist_ok=True)
    paths = {site: STORED / version / "tables" / f"{site}.csv" for site in (*NAMES, "all")}
    return Federation(folder, PRIVATE if name == "private" else PLAIN, paths)


def test_there_is_a_stored_folder_of_every_version_that_is_read() -> None:
    assert {path.name for path in STORED.iterdir() if path.is_dir()} == set(versions.READS)
    assert versions.VERSION in versions.READS


@pytest.mark.parametrize("version", versions.READS)
def test_a_stored_run_is_continued_to_the_numbers_of_one_that_never_stopped(version: str, tmp_path: Path) -> None:
    stored = federation(version, tmp_path / "stored")
    result = stored.play()
    assert result.run.round == ROUNDS and [line["round"] for line in result.history] == [2, 4]
    Federation(tmp_path / "whole", PLAIN, stored.paths).play()
    found, expected = numbers(tmp_path / "stored"), numbers(tmp_path / "whole")
    assert found.keys() == expected.keys()
    for name, value in found.items():  # another build played the first rounds: its sums may have had another order
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for name in NAMES:  # the log goes on in its chain, and no round was asked for twice
        rounds = [
            line["left"]["round"]
            for line in verified(tmp_path / "stored" / name)
            if line["left"].get("stage") == "train"
        ]
        assert rounds == [0, 1, 2, 3]


@pytest.mark.parametrize("version", versions.READS)
def test_a_stored_ledger_and_audit_log_are_read(version: str) -> None:
    place = STORED / version / "private" / "a"
    assert spent_in_all(place) == {"0": composed_epsilon([(2.0, 1.0, PLAYED)], 1e-5)}
    lines = verified(place)
    assert [line["epsilon"] for line in lines if line["left"].get("stage") == "train"][-1] == spent_in_all(place)["0"]


def test_everybody_is_upgraded_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """A setting that the old version did not have has its default, and what is written is of the new version."""
    fed = federation("0.1.0", tmp_path)
    for place in [tmp_path / "server" / "roster.json", *tmp_path.glob("?/*/welcome.json")]:
        old = read_json(place)
        assert old["terms"].pop("class_weights") == "none"
        write_json(place, old)
    with mock.patch.multiple(versions, VERSION="0.2.0", READS=("0.1.0", "0.2.0")):
        assert fed.play().run.round == ROUNDS
    assert read_json(tmp_path / "server" / "roster.json")["terms"]["sartor"] == "0.2.0"
    assert len({read_json(place)["terms"]["sartor"] for place in tmp_path.glob("?/*/welcome.json")} ^ {"0.2.0"}) == 0
    with pytest.raises(SartorError, match=r"was written by Sartor 0\.2\.0; this is 0\.1\.0"):  # there is no way back
        fed.play()


def test_a_folder_of_a_version_that_is_not_read_is_left_alone(tmp_path: Path) -> None:
    fed = federation("0.1.0", tmp_path)
    before = vectors_of(tmp_path)
    with (
        mock.patch.multiple(versions, VERSION="0.3.0", READS=("0.2.0", "0.3.0")),
        pytest.raises(
            SartorError, match=r"was written by Sartor 0.1.0; this is 0.3.0, which goes on from 0.2.0 and 0.3.0"
        ),
    ):
        fed.play()
    assert vectors_of(tmp_path) == before


def vectors_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.safetensors")}


def new(folder: Path) -> Federation:
    """One that has not begun."""
    fed = federation("0.1.0", folder)
    for name in ("server", *NAMES):
        shutil.rmtree(folder / name)
    return fed


@pytest.mark.parametrize("begun", [False, True])
def test_a_site_of_another_version_is_refused_by_both_names(begun: bool, tmp_path: Path) -> None:
    """Before the first round and in the middle of a run, where only one side was upgraded."""
    fed = federation("0.1.0", tmp_path) if begun else new(tmp_path)
    calls = fed.calls()
    answer = calls.members["b"]

    def upgraded(data: bytes) -> bytes | None:
        with mock.patch.multiple(versions, VERSION="0.2.0", READS=("0.1.0", "0.2.0")):
            return answer(data)

    calls.members["b"] = upgraded
    result = fed.play(calls)
    said = [text for text in fed.said if "0.1.0" in text and "0.2.0" in text]
    assert any(
        text.startswith("b: refused (agreement): the server has Sartor 0.1.0 and site b has 0.2.0") for text in said
    )
    assert any(text.startswith("site b is left out: it refused (the server has Sartor 0.1.0 and") for text in said)
    assert result.run.round == ROUNDS and (begun or result.data.names == ["a", "c"])
    lines = verified(tmp_path / "b")
    assert sum(line["left"].get("stage") == "train" for line in lines) == (PLAYED if begun else 0)


def test_a_site_that_does_not_look_is_refused_by_the_server(tmp_path: Path) -> None:
    fed = new(tmp_path)
    calls = fed.calls()

    def older(site: str, data: bytes) -> list[bytes]:
        message = decode(data)
        if site == "b" and message.kind == "joined":
            return [encode(Message("joined", message.run, note=message.note | {"sartor": "0.0.9"}))]
        return [data]

    calls.after = older
    assert fed.play(calls).data.names == ["a", "c"]
    assert any("site b is left out: it has Sartor 0.0.9 and the server 0.1.0: install the same" in t for t in fed.said)


def test_another_wire_format_is_named() -> None:
    data = encode(Message("done", "run"))
    with pytest.raises(
        Damaged, match=r"in another wire format than Sartor 0\.1\.0 has; install the same version at both"
    ):
        decode(data.replace(b"SARTOR1\n", b"SARTOR2\n"))
