"""Sites that come and go: the lists, the kits made in one place, and a run whose federation has changed since."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import good, refused
from sites import NAMES, QUICK, Federation, tables

pytest.importorskip("nvflare")

from sartor.errors import SartorError
from sartor.federation import certificates, signing_requests
from sartor.federation.kits import Kit
from sartor.federation.revocation import LIST, in_use
from sartor.federation.supervised_process import certificate
from sartor.run.recipe import Recipe


@pytest.fixture(autouse=True)
def smaller_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quickly made ones."""
    monkeypatch.setattr(signing_requests, "KEY_BITS", 2048)


def made(folder: Path, *more: str) -> Path:
    good("federation", "init", "--name", "trial", "--server", "localhost:443", "--sites", "a,b", "--out", folder, *more)
    return folder


def own(kit: Path) -> object:
    return certificates.read(kit / "startup" / "client.crt")


def test_kits_made_in_one_place_are_changed_in_one_place(tmp_path: Path) -> None:
    kits = made(tmp_path / "kits")
    words = (kits / "README.txt").read_text()
    assert "All keys were made here, in one place" in words and "--requests" in words
    root = certificates.read(kits / "server" / "startup" / "rootCA.pem")
    good("federation", "add", kits, "c")
    assert Kit.load(kits / "server", "server").sites == ["a", "b", "c"] and Kit.load(kits / "c", "site").who == "c"
    assert "is on the list of trial already" in refused("federation", "add", kits, "c")
    assert "is not 'server'" in refused("federation", "add", kits, "server")
    old, state = own(kits / "a"), kits / "a" / "play" / "state"
    state.parent.mkdir()
    state.write_text("what was played")
    good("federation", "rotate", kits, "a")
    assert own(kits / "a") != old and state.read_text() == "what was played"
    lists = [in_use(kits / who, root) for who in ("server", "a", "b", "c")]
    assert {found.number for found in lists} == {1} and old in lists[0] and own(kits / "a") not in lists[0]
    said = good("federation", "revoke", kits, "b").out
    assert "list 2 of revoked certificates: put it into the server's kit" in said
    assert Kit.load(kits / "server", "server").sites == ["a", "c"]
    assert {old, own(kits / "b")} == {
        c for c in (old, own(kits / "b"), own(kits / "a")) if c in in_use(kits / "c", root)
    }
    with pytest.raises(SartorError, match=r"the certificate of this kit is revoked \(list 2"):
        certificate(kits / "b", "client")
    certificate(kits / "a", "client")
    good("federation", "remove", kits, "c")
    assert Kit.load(kits / "server", "server").sites == ["a"] and own(kits / "c") not in in_use(kits / "a", root)
    assert "nothing to revoke" in refused("federation", "revoke", kits, "b")
    assert "rotate" in refused("federation", "revoke", kits, "server")
    assert "unknown site of trial 'x'" in refused("federation", "remove", kits, "x")


def test_a_revoked_kit_is_refused_in_one_line_before_it_connects(tmp_path: Path) -> None:
    kits, data = made(tmp_path / "kits"), tables(tmp_path / "tables")["a"]
    good("federation", "revoke", kits, "a")
    line = refused("client", kits / "a", "--data", data, "--target", "outcome")
    assert "the certificate of this kit is revoked (list 1 of revoked certificates)" in line
    (kits / "b" / LIST).write_text((kits / "b" / LIST).read_text().replace("\n", "\nA", 1))
    assert "is not signed by this federation's authority" in refused(
        "client", kits / "b", "--data", data, "--target", "outcome"
    )


def test_a_new_key_of_its_owners_takes_the_old_ones_place(tmp_path: Path) -> None:
    kits, kit, answer = made(tmp_path / "kits", "--requests"), tmp_path / "a", tmp_path / "answer"

    def request() -> Path:
        good("federation", "request", "--name", "trial", "--site", "a", "--out", kit)
        return kit / "request.csr"

    good("federation", "sign", kits, request(), "--out", answer)
    good("federation", "join", kit, answer)
    old = own(kit)
    assert "its key was made elsewhere" in refused("federation", "rotate", kits, "a")
    new = request()
    assert own(kit) == old  # in use until the answer is there
    assert "go together" in refused("federation", "rotate", kits, "a", "--request", new)
    assert "not of b" in refused("federation", "rotate", kits, "b", "--request", new, "--out", answer)
    good("federation", "rotate", kits, "a", "--request", new, "--out", answer)
    good("federation", "join", kit, answer)
    root = certificates.read(kit / "startup" / "rootCA.pem")
    assert own(kit) != old and old in in_use(kit, root) and own(kit) not in in_use(kit, root)
    wrong = refused("federation", "request", "--name", "trial", "--site", "b", "--out", kit)
    assert "is the kit of a in trial, and the request is for b in trial" in wrong


def test_the_servers_list_is_changed_at_the_server_where_the_authority_is_elsewhere(tmp_path: Path) -> None:
    kits, kit = made(tmp_path / "kits", "--requests"), tmp_path / "server"
    good("federation", "request", "--name", "trial", "--site", "server", "--out", kit)
    good("federation", "sign", kits, kit / "request.csr", "--out", tmp_path / "answer")
    good("federation", "join", kit, tmp_path / "answer")
    said = good("federation", "add", kits, "c").out
    assert "may be signed now" in said and "at the server: sartor federation add KIT c" in said
    good("federation", "add", kit, "c")
    assert Kit.load(kit, "server").sites == ["a", "b", "c"]
    good("federation", "remove", kit, "a")
    assert Kit.load(kit, "server").sites == ["b", "c"]
    assert "unknown site on the server's list 'a'" in refused("federation", "remove", kit, "a")
    assert "is on the server's list already" in refused("federation", "add", kit, "b")


def test_a_run_goes_on_without_who_left_and_tells_who_is_new_to_wait(tmp_path: Path) -> None:
    """Of the three that began, c is taken off the list after two rounds, and d is put on it."""
    paths = tables(tmp_path / "tables", (*NAMES, "d"))
    fed = Federation(tmp_path / "fed", Recipe(method="flame", **QUICK | {"rounds": 6, "evaluate_every": 6}), paths)
    began = fed.lead(fed.calls()).play()
    for result in began:
        if result.run.round == 2:
            break
    began.close()
    calls = fed.calls(("a", "b", "d"))
    lead = fed.lead(calls)
    results = list(lead.play())
    assert results[-1].run.round == 6
    assert "site c is left out: it is no longer on the server's list" in fed.said
    assert "site d is not in this run, which began without it; it can take part in the next one" in fed.said
    assert (
        "d: refused (foreign): a run that this site has not joined; if it is new, it can take part in the next one"
        in (fed.said)
    )
    assert {site for way, site, _ in calls.seen} == {"a", "b", "d"}
    assert lead.hub is not None and lead.hub.silent == dict.fromkeys(NAMES, 0)  # nobody was waited for
    roster = json.loads((tmp_path / "fed" / "server" / "roster.json").read_text())
    assert list(roster["sites"]) == list(NAMES) and roster["left_out"] == {}
    last = fed.lead(fed.calls())  # c is put on the list again, and the run is over for all
    list(last.play())
    assert last.left_out == {}
