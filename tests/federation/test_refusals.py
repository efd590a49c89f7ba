"""What a real federation refuses, with real certificates: strangers, kits that do not fit, jobs nobody may send."""

from __future__ import annotations

import datetime
import itertools
import json
import shutil
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import waiting
from commandline import one_line, refused
from processes import Processes, run
from sites import tables

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sartor.federation import supervised_process
from sartor.federation.kits import Kit
from sartor.federation.supervised_process import Daemon

OPERATOR, OUTSIDE = "operator@sartor.local", "nvflare.app_common.np.np_trainer.NPTrainer"
RECIPE = 'method = "flame"\nmodel = "softmax"\nrounds = 3\n'
UTC = datetime.UTC


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Path:
    """Kits of a federation that is not started."""
    return Processes.make(tmp_path_factory.mktemp("one"), RECIPE, data).kits


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Path:
    """Kits of another federation."""
    return Processes.make(tmp_path_factory.mktemp("two"), RECIPE, data).kits


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Processes]:
    """A server that waits for its sites."""
    found = Processes.make(tmp_path_factory.mktemp("three"), RECIPE, data)
    found.start("server")
    try:
        found.until(lambda: "waiting for site" in found.said("server"))
        yield found
    finally:
        found.end()


def signed(kits: Path, name: str, folder: Path, role: str | None = None, days: tuple[int, int] = (-1, 30)) -> None:
    """A key, and a certificate for `name` by the federation's own authority: what keep-apart/ could be used for."""
    state = json.loads((kits / "keep-apart" / "cert.json").read_text())
    root = x509.load_pem_x509_certificate(state["root_cert"].encode())
    key = serialization.load_pem_private_key(state["root_pri_key"].encode(), None)
    own = rsa.generate_private_key(65537, 2048)
    words = [x509.NameAttribute(NameOID.COMMON_NAME, name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "trial")]
    words += [x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role)] if role else []
    now = datetime.datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(words))
        .issuer_name(root.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    (folder / "client.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    (folder / "client.key").write_bytes(own.private_bytes(*form))


def let_in(port: int, folder: Path | None) -> bool:
    """Whether the server keeps a TLS connection with this certificate open."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if folder is not None:
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
    try:
        with (
            socket.create_connection(("localhost", port), timeout=waiting.STILL) as plain,
            context.wrap_socket(plain) as line,
        ):
            line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return len(line.recv(1)) == 1  # answered, if only to say that this is no websocket
    except (ssl.SSLError, ConnectionError):
        return False


def port_of(kits: Path) -> int:
    return int(json.loads((kits / "server" / "kit.json").read_text())["port"])


def test_a_stranger_is_not_let_in(open_server: Processes, other: Path, tmp_path: Path) -> None:
    port = port_of(open_server.kits)
    assert let_in(port, open_server.kits / "a" / "startup")
    assert not let_in(port, None)
    assert not let_in(port, other / "a" / "startup")
    signed(open_server.kits, "a", tmp_path)
    assert let_in(port, tmp_path)
    signed(open_server.kits, "a", tmp_path, days=(-20, -10))
    assert not let_in(port, tmp_path)


def test_a_second_server_finds_its_port_in_use(
    open_server: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=5)  # five seconds at every look
    monkeypatch.setattr(
        supervised_process, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: None)
    )
    copy = tmp_path / "server"
    shutil.copytree(open_server.kits / "server", copy, ignore=shutil.ignore_patterns("play", "store"))
    line = refused("server", copy, "--recipe", open_server.recipe)
    assert f"port {port_of(open_server.kits)} of localhost is in use" in line
    line = refused("server", open_server.kits / "server", "--recipe", open_server.recipe)
    assert "another sartor server works with" in line


def test_kits_are_hardened(kits: Path) -> None:
    for who in ("server", "a", "b", "c"):
        found = json.loads((kits / who / "local" / "resources.json").read_text())
        assert found["class_list_enforcement_mode"] == "enforce" and found["class_allow_list"] == [
            "sartor.federation.nvflare_jobs"
        ]
        assert found["allow_log_streaming"] is False
        assert not {c["id"] for c in found["components"]} & {"site_log_streamer", "log_receiver"}
        rules = json.loads((kits / who / "local" / "authorization.json").read_text())["permissions"]
        assert {role["byoc"] for role in rules.values()} == {"none"}
        assert {r for r, may in rules.items() if may["submit_job"] != "none"} == {"project_admin"}
    stores = json.dumps(json.loads((kits / "server" / "local" / "resources.json").read_text()))
    assert "/tmp/nvflare" not in stores and str(kits / "server" / "store") in stores
    keys = [*kits.rglob("*.key"), kits / "keep-apart" / "cert.json"]
    assert len(keys) == 6 and {p.stat().st_mode & 0o777 for p in keys} == {0o600}
    assert {p.stat().st_mode & 0o777 for p in kits.rglob("*") if p.is_dir()} == {0o700}
    for who in ("server", "a", "b", "c"):  # nobody is given the authority's key, or another's
        assert len(list((kits / who).rglob("*.key"))) == (2 if who == "server" else 1)
    words = (kits / "README.txt").read_text()
    assert "keep-apart/  goes to nobody" in words and "a/  goes to site a, and to nobody else" in words


def test_kits_that_do_not_fit_are_refused_in_one_line(
    kits: Path, other: Path, data: dict[str, Path], tmp_path: Path
) -> None:
    own = ("--data", data["a"], "--target", "outcome")
    assert "is the kit of the server; sartor client takes a site's" in refused("client", kits / "server", *own)
    (tmp_path / "r.toml").write_text(RECIPE)
    recipe = ("--recipe", tmp_path / "r.toml")
    assert "is the kit of site a; sartor server takes the server's" in refused("server", kits / "a", *recipe)
    assert "is not a kit" in refused("client", tmp_path, *own)
    assert "is not a kit" in refused("federation", "status", tmp_path)
    mixed = tmp_path / "mixed"
    shutil.copytree(kits / "a", mixed)
    shutil.copyfile(other / "a" / "startup" / "rootCA.pem", mixed / "startup" / "rootCA.pem")
    assert "come from two federations" in refused("client", mixed, *own)


def test_certificates_out_of_date_are_refused_in_one_line(kits: Path, data: dict[str, Path], tmp_path: Path) -> None:
    own = ("--data", data["a"], "--target", "outcome")
    kit = tmp_path / "a"
    shutil.copytree(kits / "a", kit)
    signed(kits, "a", kit / "startup", days=(-20, -10))
    assert "the certificate of this kit expired on" in refused("client", kit, *own)
    signed(kits, "a", kit / "startup", days=(10, 20))
    assert "Set the clock" in refused("client", kit, *own)


def test_files_and_options_that_do_not_fit_are_refused_in_one_line(
    kits: Path, data: dict[str, Path], tmp_path: Path
) -> None:
    assert "there is no file" in refused("client", kits / "a", "--data", tmp_path / "x.csv")
    line = refused("client", kits / "a", "--data", data["a"], "--target", "outcom")
    assert "unknown column of a.csv 'outcom': did you mean outcome?" in line
    own = ("--data", data["a"], "--target", "outcome")
    assert "--share takes metrics=" in refused("client", kits / "a", *own, "--share", "all")
    assert "share metrics" in refused("client", kits / "a", *own, "--share", "metrics=some")
    (tmp_path / "bad.toml").write_text('method = "flam"\n')
    assert "did you mean flame" in refused("server", kits / "server", "--recipe", tmp_path / "bad.toml")
    (tmp_path / "drop.toml").write_text("drop = 0.5\n")
    assert "drop works only in a simulation" in refused("server", kits / "server", "--recipe", tmp_path / "drop.toml")
    assert "holds no personal models yet" in refused("federation", "export", kits / "b", "--out", tmp_path / "m")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"--server": "localhost"}, "--server is HOST:PORT"),
        ({"--server": "localhost:99999"}, "--server is HOST:PORT"),
        ({"--sites": "a,a"}, "different names"),
        ({"--sites": "server"}, "is not 'server'"),
        ({"--sites": "../a"}, "letters a-z"),
        ({"--name": "A trial"}, "a federation's name"),
    ],
)
def test_kits_that_cannot_be_made_are_refused(changed: dict[str, str], words: str, tmp_path: Path) -> None:
    given = {"--name": "trial", "--server": "localhost:8002", "--sites": "a,b", "--out": str(tmp_path / "k")} | changed
    assert words in refused("federation", "init", *(word for pair in given.items() for word in pair))
    assert not (tmp_path / "k").exists()


def test_a_server_that_is_not_there_is_tried_again_and_given_up(kits: Path, data: dict[str, Path]) -> None:
    done = run("client", kits / "a", "--data", data["a"], "--target", "outcome", "--connect-timeout", 3)
    assert done.returncode == 2
    assert f"no server at localhost:{port_of(kits)} yet; again in 1 s" in done.stdout
    assert "no server at" in one_line(done.stderr) and "--connect-timeout" in done.stderr


# --- with jobs: slower ------------------------------------------------------------------------------------------------

ASK = """
import json, sys
from nvflare.fuel.flare_api.flare_api import new_secure_session
user, kit, job = sys.argv[1:]
try:
    admin = new_secure_session(user, kit, timeout=600)
    number = admin.submit_job(job)
    import time
    while not (found := admin.get_job_meta(number))["status"].startswith("FINISHED"):
        time.sleep(1)
    print("RESULT", json.dumps([found["status"], found.get("job_deploy_detail")]))
except Exception as e:
    print("RESULT", json.dumps([type(e).__name__, str(e)]))
import os; sys.stdout.flush(); os._exit(0)
"""


def submitted(user: str, kit: Path, job: Path) -> list[Any]:
    done = waiting.run([sys.executable, "-c", ASK, user, kit, job])
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, (done.stdout, done.stderr)
    return list(json.loads(lines[-1].removeprefix("RESULT ")))


def a_job(folder: Path, path: str, code: bool = False) -> Path:
    from sartor.federation.transports.nvflare import job

    for name, value in job("trial", path, path, ["a", "b", "c"]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    if code:
        (folder / "app" / "custom").mkdir()
        (folder / "app" / "custom" / "evil.py").write_text("open('evil', 'w')\n")
    return folder


@pytest.mark.federation
def test_only_the_operator_submits_and_no_job_carries_code(open_server: Processes, tmp_path: Path) -> None:
    kits = open_server.kits
    open_server.start("a")
    open_server.until(lambda: "connected to" in open_server.said("a"))
    operator = kits / "server" / "operator"
    member = tmp_path / "member"
    shutil.copytree(operator, member)
    signed(kits, "guest@sartor.local", member / "startup", role="member")
    about = json.loads((member / "startup" / "fed_admin.json").read_text())
    about["admin"]["username"] = "guest@sartor.local"
    (member / "startup" / "fed_admin.json").write_text(json.dumps(about))
    plain = a_job(tmp_path / "plain", "sartor.federation.nvflare_jobs.ServerJob")
    name, text = submitted("guest@sartor.local", member, plain)
    assert name == "AuthorizationError" and "'guest@sartor.local' is not authorized for 'submit_job'" in text
    code = a_job(tmp_path / "code", "evil.Evil", code=True)
    assert submitted(OPERATOR, operator, code) == ["FINISHED:FAILED_TO_RUN", ["server: BYOC not permitted"]]
    outside = a_job(tmp_path / "class", OUTSIDE)
    assert submitted(OPERATOR, operator, outside)[0] == "FINISHED:ABNORMAL"
    assert f"Component '{OUTSIDE}' at config path 'workflows.#1' is not in allow_list" in _daemon(kits / "server")
    assert not list(kits.rglob("evil"))


def _daemon(kit: Path) -> str:
    return (kit / "play" / "daemon.txt").read_text(errors="replace")


@pytest.mark.federation
def test_a_site_refuses_code_even_from_its_own_server(tmp_path: Path, data: dict[str, Path]) -> None:
    """A server whose own policy was changed to allow everything."""
    found = Processes.make(tmp_path, RECIPE, data)
    kit, operator = found.kits / "server", found.kits / "server" / "operator"
    policy = kit / "local" / "authorization.json"
    policy.write_text(json.dumps({"format_version": "1.0", "permissions": {"project_admin": "any"}}))
    resources = json.loads((kit / "local" / "resources.json").read_text())
    (kit / "local" / "resources.json").write_text(json.dumps(resources | {"class_list_enforcement_mode": "off"}))
    daemon = Daemon(kit, Kit.load(kit, "server"))
    daemon.start()
    try:
        found.start("a")
        found.until(lambda: "connected to" in found.said("a"))
        code = a_job(tmp_path / "code", "evil.Evil", code=True)
        assert "a: NVFLARE_ERROR: BYOC not permitted" in submitted(OPERATOR, operator, code)[1]
        job = a_job(tmp_path / "class", "sartor.federation.nvflare_jobs.ServerJob")
        place = job / "app" / "config" / "config_fed_client.json"
        place.write_text(place.read_text().replace("sartor.federation.nvflare_jobs.ServerJob", OUTSIDE))
        (kit / "play" / "recipe.toml").write_text(RECIPE)
        assert submitted(OPERATOR, operator, job)[0].startswith("FINISHED:")
        assert f"Component '{OUTSIDE}' at config path 'executors.#1.executor' is not in allow_list" in _daemon(
            found.kits / "a"
        )
        assert not list(found.kits.rglob("evil"))
    finally:
        found.end()
        daemon.stop()


@pytest.mark.federation
def test_a_client_that_is_not_on_the_list_is_turned_away(open_server: Processes, data: dict[str, Path]) -> None:
    kit = open_server.kits / "mallory"
    shutil.copytree(open_server.kits / "c", kit, ignore=shutil.ignore_patterns("play"))
    signed(open_server.kits, "mallory", kit / "startup")
    for name, key in (("kit.json", '"c"'), ("startup/fed_client.json", '"c"')):
        text = (kit / name).read_text()
        (kit / name).write_text(
            text.replace(f'"who": {key}', '"who": "mallory"').replace(f'"fqsn": {key}', '"fqsn": "mallory"')
        )
    open_server.data["mallory"] = data["c"]
    open_server.start("mallory")
    open_server.until(lambda: "not on the list" in open_server.said("server"))
    open_server.kill("mallory")


@pytest.mark.federation
def test_one_kit_is_used_by_one_process(open_server: Processes, data: dict[str, Path]) -> None:
    if "b" not in open_server.started:
        open_server.start("b")
    open_server.until(lambda: "samples" in open_server.said("b"))
    line = refused("client", open_server.kits / "b", "--data", data["b"], "--target", "outcome")
    assert "another sartor client works with" in line
