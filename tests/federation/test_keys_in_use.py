"""Real federations whose parties made their own keys: a key is replaced during a run, a proxy cuts connections.
What comes out are the simulation's bytes all the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sites import tables

pytest.importorskip("nvflare")

from processes import Processes, run, same_as_simulated
from proxies import proxy

RECIPE = 'method = "flame"\nmodel = "mlp(6)"\nseed = 3\nrounds = {}\nevaluate_every = 10\n'
SECURE = "secure_aggregation = true\n"


def done(*words: object) -> str:
    found = run("federation", *words)
    assert found.returncode == 0, found
    return found.stdout


@pytest.mark.federation
def test_the_old_key_of_a_site_is_refused_by_a_real_server_and_its_new_one_goes_on(tmp_path: Path) -> None:
    """With secure aggregation, whose keys are signed with the new certificate. A thief has b's old kit."""
    data = tables(tmp_path / "tables")
    found = Processes.make(tmp_path, RECIPE.format(40) + SECURE, data, own_keys=True)
    kits, signer, answer = found.kits, tmp_path / "authority", tmp_path / "new.answer"
    shutil.copytree(kits / "b", kits / "thief")
    found.data["thief"] = data["b"]
    try:
        found.start("server", "a", "b", "c")
        found.until(lambda: found.round() >= 5)
        found.kill("server", "b")
        done("request", "--name", "trial", "--site", "b", "--out", kits / "b")
        done("rotate", signer, "b", "--request", kits / "b" / "request.csr", "--out", answer)
        done("join", kits / "b", answer)
        shutil.copyfile(signer / "revoked.pem", kits / "server" / "revoked.pem")
        found.start("server")
        found.until(lambda: found.said("server").count("server of trial on") >= 2)
        found.start("thief")
        found.started.pop("thief").wait()
        assert "hangs up when it sees this kit's certificate: it is revoked, or" in found.said("thief")
        assert "connected to" not in found.said("thief")
        found.start("b")
        found.finish()
        same_as_simulated(found, data, tmp_path / "simulated")
        assert (kits / "a" / "revoked.pem").read_bytes() == (signer / "revoked.pem").read_bytes()  # by the welcome
    finally:
        found.end()


@pytest.mark.federation
def test_connections_that_a_proxy_cuts_are_made_again_to_the_same_bytes(tmp_path: Path) -> None:
    data = tables(tmp_path / "tables")
    found = Processes.make(tmp_path, RECIPE.format(60), data)
    try:
        with proxy() as way:
            found.own["b"] = ("--proxy", way.address)
            found.start()
            found.until(lambda: found.round() >= 5)
            carried = way.bytes
            assert carried > 10_000 and way.asked[-1].startswith("CONNECT localhost:")
            for _ in range(2):
                reached, before = found.round(), len(way.asked)
                way.cut()
                found.until(
                    lambda reached=reached, before=before: found.round() > reached + 2 and len(way.asked) > before
                )
            found.finish()
            assert way.bytes > carried
        assert "was cut; nothing is lost, it is made again" in found.said("b")
        same_as_simulated(found, data, tmp_path / "simulated")
    finally:
        found.end()
