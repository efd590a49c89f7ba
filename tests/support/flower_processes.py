"""A real Flower federation on this machine: SuperLink, SuperNodes and `flwr run` as processes that tests kill."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import waiting
from processes import free_port

APP = Path(__file__).parents[2] / "examples" / "flower"
# Flower asks the internet for updates and sends statistics, unless it is told not to.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@dataclass
class Flower:
    """A SuperLink, a SuperNode for each entry of `nodes`, and runs. Everything that was started is ended by `end`."""

    folder: Path
    nodes: Mapping[str, Mapping[str, Any]]  # each one's configuration
    config: Mapping[str, Any]  # the run's
    secure: bool = False  # TLS, and nodes that are known by their keys
    strangers: tuple[str, ...] = ()  # nodes whose keys are not registered
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ever: list[psutil.Process] = field(default_factory=list)
    starts: int = 0

    def __post_init__(self) -> None:
        self.port, self.ports = free_port(), {name: free_port() for name in self.nodes}
        home = self.folder / "home"
        home.mkdir(parents=True)
        how = f'root-certificates = "{self.folder / "ca.crt"}"' if self.secure else "insecure = true"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n{how}\n'
        )
        if self.secure:
            certificates(self.folder, list(self.nodes))

    def start(self, *names: str) -> None:
        for name in names or ("superlink", *self.nodes):
            words = self._superlink() if name == "superlink" else self._supernode(name)
            self._begin(name, words)
            if name == "superlink":
                self.starts += 1  # its log goes on from the one before
                self.until(lambda: self.said("superlink").count("Application startup complete") >= self.starts)
                if self.secure and not (self.folder / "registered").exists():
                    (self.folder / "registered").touch()
                    for node in (n for n in self.nodes if n not in self.strangers):
                        self._flwr("supernode", "register", str(self.folder / f"{node}.pub"), "here", "--name", node)

    def _superlink(self) -> list[str]:
        words = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)]
        words += ["--database", str(self.folder / "state.db"), "--disable-runtime-dependency-installation"]
        if not self.secure:
            return [*words, "--insecure"]
        files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
        return [*words, *(w for k, v in files.items() for w in (k, str(self.folder / v))), "--enable-supernode-auth"]

    def _supernode(self, name: str) -> list[str]:
        words = ["flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1"]
        words += ["--port", str(self.ports[name]), "--node-config", _written(self.nodes[name])]
        if not self.secure:
            return [*words, "--insecure"]
        key = ["--auth-supernode-private-key", str(self.folder / name)]
        return [*words, "--root-certificates", str(self.folder / "ca.crt"), *key]

    def run(self) -> None:
        """Submit the run; it goes on when this process is gone."""
        self._flwr("run", str(APP), "here", "-c", _written(self.config))

    def _flwr(self, *words: str) -> None:
        done = waiting.run([_program("flwr"), *words], self._env())
        assert done.returncode == 0, (done.stdout, done.stderr)

    def _begin(self, name: str, words: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(_program(words[0])), *words[1:]]
            self.started[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._env(), cwd=self.folder
            )

    def _env(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return os.environ | QUIET | {"PATH": path, "FLWR_HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"}

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(f"--- {p}\n{p.read_text(errors='replace')[-4000:]}" for p in self.folder.rglob("*log*"))

    def status(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((Path(self.config["folder"]) / "status.json").read_text())
            return found
        return {"state": "", "round": 0}

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it, as long as the processes do something."""
        waiting.until(condition, lambda: [p.pid for p in self._tree(*self.started)], self.logs)

    def finish(self) -> None:
        self.until(lambda: self.status()["state"] == "finished")

    def program(self, name: str, what: str) -> psutil.Process | None:
        """A process that a SuperLink or SuperNode has started: flwr-serverapp, flwr-clientapp."""
        for process in self._tree(name):
            with contextlib.suppress(psutil.Error):
                if any(what in word for word in process.cmdline()):
                    return process
        return None

    def _tree(self, *names: str) -> list[psutil.Process]:
        found = []
        for name in names:
            if self.started[name].poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    first = psutil.Process(self.started[name].pid)
                    found += [first, *first.children(recursive=True)]
        self.ever += [p for p in found if p not in self.ever]
        return found

    def kill(self, *names: str) -> None:
        """Everything of these, at once and without a word."""
        for process in self._tree(*names):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        for name in names:
            self.started.pop(name).wait()

    def end(self) -> None:
        self.kill(*self.started)
        for process in self.ever:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(self.ever, timeout=waiting.STILL)
        assert not alive, alive


def _program(name: str) -> Path:
    return Path(sys.executable).parent / name


def _written(config: Mapping[str, Any]) -> str:
    """As Flower's options take it: name=value, texts quoted."""
    return " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())


def certificates(folder: Path, nodes: list[str]) -> None:
    """An authority, the server's certificate for 127.0.0.1, and a key for each node."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
        return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())

    def signed(name: str, key: Any, by: str, with_key: Any, *extensions: x509.ExtensionType) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        who = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (name, by)]
        made = x509.CertificateBuilder().subject_name(who[0]).issuer_name(who[1]).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        made = made.not_valid_after(now + datetime.timedelta(days=2))
        for extension in extensions:
            made = made.add_extension(extension, critical=False)
        return made.sign(with_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    about = (x509.BasicConstraints(ca=True, path_length=None),)
    (folder / "ca.crt").write_bytes(signed("ca", authority, "ca", authority, *about))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    (folder / "server.crt").write_bytes(signed("127.0.0.1", server, "ca", authority, names))
    (folder / "server.key").write_bytes(private(server, serialization.PrivateFormat.TraditionalOpenSSL))
    for node in nodes:
        key = ec.generate_private_key(ec.SECP384R1())
        (folder / node).write_bytes(private(key, serialization.PrivateFormat.OpenSSH))
        public = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        (folder / f"{node}.pub").write_bytes(key.public_key().public_bytes(*public))
