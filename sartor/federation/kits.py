"""Kits: a folder for the server, one for each site. NVFlare makes the start-up files; here they are hardened."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from ..errors import SartorError, need
from ..storage import read_json, write_json, write_text
from . import certificates
from .authority import OPERATOR, PRIVATE, SERVER, Answer, Authority
from .handout import words
from .revocation import newer
from .signing_requests import new_key, signing_request

JOBS = "sartor.federation.nvflare_jobs"  # the only classes that a job may name, at the server and at every site
KIT = "kit.json"
_WORD = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_SERVER = re.compile(rf"(?=.{{1,63}}:)({_WORD}(\.{_WORD})*):([0-9]{{1,5}})")
_DAYS = 36500  # a certificate's dates have four digits for the year
_SITE = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Kit:
    """What a kit says about itself."""

    federation: str
    who: str  # "server" or a site's name
    host: str
    port: int
    sites: list[str]
    authority: str  # the certificate authority's fingerprint: kits of one federation have the same

    @classmethod
    def load(cls, folder: Path, who: str) -> Kit:
        """The kit in a folder, which must be the server's or a site's."""
        place = folder / KIT
        need(place.is_file(), f"{folder} is not a kit: it has no {KIT}. Make kits with sartor federation init.")
        try:
            kit = cls(**read_json(place))
        except TypeError as e:
            raise SartorError(f"{place} is not a kit of this version; make the kits again.") from e
        need(
            (kit.who == "server") == (who == "server"),
            f"{folder} is the kit of {'the server' if kit.who == 'server' else 'site ' + kit.who}; "
            f"sartor {'client takes a site' if who == 'site' else 'server takes the server'}'s.",
        )
        found = authority(folder)
        need(
            found == kit.authority,
            f"{folder} holds the certificate of another federation's authority ({found[:8]}, not {kit.authority[:8]}): "
            "its files come from two federations. Ask for the kit again.",
        )
        return kit


def authority(folder: Path) -> str:
    """The fingerprint of the authority that a kit trusts."""
    return certificates.fingerprint(certificates.read(folder / "startup" / certificates.ROOT))


def check_site(site: str) -> None:
    """Refuse what cannot be a site's name."""
    good = bool(_SITE.fullmatch(site)) and site not in (SERVER, PRIVATE)
    need(good, f"a site's name has letters a-z, digits and '-', and is not '{SERVER}'; got {site!r}.")


def check_name(name: str) -> None:
    """Refuse what cannot be a federation's name."""
    need(bool(_SITE.fullmatch(name)), f"a federation's name has letters a-z, digits and '-'; got {name!r}.")


def check_server(server: str) -> tuple[str, int]:
    """Host and port of HOST:PORT."""
    host, _, port = server.rpartition(":")
    good = bool(_SERVER.fullmatch(server)) and 0 < int(port) < 65536
    need(good, f"--server is HOST:PORT, as in fl.example.org:443; got {server!r}.")
    return host, int(port)


def make(name: str, server: str, sites: Sequence[str], out: Path, days: int = 360, requests: bool = False) -> list[Kit]:
    """A federation in `out`: its authority in keep-apart/; server/ and one folder for each site, unless they make their
    own keys (`requests`)."""
    host, port = check_server(server)
    need(1 <= days <= _DAYS, f"certificates are valid for 1 to {_DAYS} days (--days); got {days}.")
    check_name(name)
    for site in sites:
        check_site(site)
    need(len(sites) > 0 and len(set(sites)) == len(sites), f"--sites are different names; got {','.join(sites)!r}.")
    need(not out.exists() or not any(out.iterdir()), f"{out} is not empty; kits are made in a new folder.")
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    signer = Authority.create(out, name, host, port, list(sites), days)
    kits = [] if requests else [own_kit(signer, who, out / who) for who in (SERVER, *sites)]
    write_text(out / "README.txt", words(name, server, sites, requests))
    return kits


def own_kit(signer: Authority, who: str, folder: Path, instead: bool = False) -> Kit:
    """A kit whose key is made here, beside the authority."""
    key = new_key()
    return build(folder, signer.sign(signing_request(key, signer.book.federation, who), instead), key)


def build(folder: Path, answer: Answer, key: rsa.RSAPrivateKey) -> Kit:
    """A kit of what the authority answered and the key that never left; what was played in it before stays."""
    server = answer.who == SERVER
    root = x509.load_pem_x509_certificate(answer.authority.encode())
    pin = certificates.fingerprint(root)
    kit = Kit(answer.federation, answer.who, answer.host, answer.port, answer.sites, pin)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = _provision(kit, Path(work))
        own = made / (kit.host if server else kit.who)
        if server:
            shutil.move(made / OPERATOR, own / "operator")
            _certify(own / "operator", "client", answer.operator, answer.authority, key)
        _certify(own, "server" if server else "client", answer.certificate, answer.authority, key)
        for path in (*own.rglob("*.sh"), *own.rglob("*.ipynb"), *own.rglob("readme.txt")):
            path.unlink()  # they would start NVFlare without looking at the list of revoked certificates
        _close(own)
        for path in own.iterdir():
            if (folder / path.name).is_dir():
                shutil.rmtree(folder / path.name)
            shutil.move(path, folder / path.name)
    harden(folder, server)
    write_json(folder / KIT, asdict(kit))
    newer(folder, answer.revoked, root)
    return kit


def _certify(folder: Path, part: str, certificate: str, root: str, key: rsa.RSAPrivateKey) -> None:
    place = folder / "startup"
    write_text(place / f"{part}.crt", certificate)
    write_text(place / certificates.ROOT, root)
    write_secret(place / f"{part}.key", certificates.key_text(key))


def write_secret(path: Path, text: str) -> None:
    """A file that nobody else could read at any time."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _provision(kit: Kit, work: Path) -> Path:
    """Start-up files by NVFlare, without keys: the folder with one of the server and one of the kit's owner."""
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    name, org = kit.federation, kit.federation.replace("-", "_")  # NVFlare's organisations have no '-'
    project = Project(name=name, description="Sartor federation", props={"api_version": 3})
    project.set_server(kit.host, org, {"fed_learn_port": kit.port, "admin_port": kit.port})
    if kit.who == SERVER:
        project.add_admin(OPERATOR, org, {"role": "project_admin"})
    else:
        project.add_client(kit.who, org, {"allow_log_streaming": False})
    with contextlib.redirect_stdout(io.StringIO()) as said:
        ctx = Provisioner(str(work), [WorkspaceBuilder(), StaticFileBuilder(config_folder="config")]).provision(project)
    made = Path(str(ctx.get("current_prod_dir") or work / name / "prod_00"))
    need((made / kit.host).is_dir(), f"the kits could not be made: {said.getvalue()[-300:]}")
    return made


def harden(folder: Path, server: bool) -> None:
    """Our classes only, no code in jobs, no logs to the server, stores inside the kit, wherever that is now.

    Done again at every start: a kit may have been moved, or its files changed by hand.
    """
    local = folder / "local"
    found: dict[str, Any] = json.loads((local / "resources.json.default").read_text())
    found["class_list_enforcement_mode"] = "enforce"
    found["class_allow_list"] = [JOBS]
    found["allow_log_streaming"] = False
    dropped = ("site_log_streamer", "log_receiver")
    found["components"] = [c for c in found["components"] if c["id"] not in dropped]
    if server:
        store = folder.resolve() / "store"
        found["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
        for component in found["components"]:
            if component["id"] == "job_manager":
                component["args"]["uri_root"] = str(store / "jobs")
        (folder / "disabled_clients.json").unlink(missing_ok=True)  # who is turned away is settled by our list
    write_json(local / "resources.json", found)
    write_json(local / "authorization.json", _POLICY)


# Only the server's operator may submit or end jobs; nobody may send code, run shell commands or copy a job.
_NOBODY = dict.fromkeys(
    ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands", "byoc"), "none"
)
_POLICY = {
    "format_version": "1.0",
    "permissions": {
        "project_admin": _NOBODY | dict.fromkeys(("submit_job", "manage_job", "view", "operate"), "any"),
        "org_admin": _NOBODY,
        "lead": _NOBODY,
        "member": _NOBODY,
    },
}


def _close(out: Path) -> None:
    """Folders and keys for their owner's eyes only."""
    for path in out.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)
        elif path.suffix == ".key":
            path.chmod(0o600)
