"""Kits: a folder for the server, one for each site, one to lock away. NVFlare makes them; here they are hardened."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import SartorError, need
from ..storage import read_json, write_json, write_text

OPERATOR = "operator@sartor.local"  # who submits the job: the server's own supervisor, from the server's kit
JOBS = "sartor.federation.nvflare_jobs"  # the only classes that a job may name, at the server and at every site
KIT = "kit.json"
PRIVATE = "keep-apart"
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
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    place = folder / "startup" / "rootCA.pem"
    try:
        return str(x509.load_pem_x509_certificate(place.read_bytes()).fingerprint(hashes.SHA256()).hex())
    except (OSError, ValueError) as e:
        raise SartorError(f"{place} cannot be read: the kit is incomplete.") from e


def make(name: str, server: str, sites: Sequence[str], out: Path, days: int = 360) -> list[Kit]:
    """Provision a federation into `out`: server/, one folder for each site, and keep-apart/."""
    host, _, port = server.rpartition(":")
    need(
        bool(_SERVER.fullmatch(server)) and 0 < int(port) < 65536,
        f"--server is HOST:PORT, as in fl.example.org:8002; got {server!r}.",
    )
    need(1 <= days <= _DAYS, f"certificates are valid for 1 to {_DAYS} days (--days); got {days}.")
    need(bool(_SITE.fullmatch(name)), f"a federation's name has letters a-z, digits and '-'; got {name!r}.")
    for site in sites:
        good = bool(_SITE.fullmatch(site)) and site not in ("server", PRIVATE)
        need(good, f"a site's name has letters a-z, digits and '-', and is not 'server'; got {site!r}.")
    need(len(sites) > 0 and len(set(sites)) == len(sites), f"--sites are different names; got {','.join(sites)!r}.")
    need(not out.exists() or not any(out.iterdir()), f"{out} is not empty; kits are made in a new folder.")
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=out) as work:
        made, state = _provision(name, host, int(port), sites, Path(work), days)
        shutil.move(made / host, out / "server")
        shutil.move(made / OPERATOR, out / "server" / "operator")
        for site in sites:
            shutil.move(made / site, out / site)
        shutil.move(state, out / PRIVATE)
    kits = []
    for who in ("server", *sites):
        folder = out / who
        kit = Kit(name, who, host, int(port), sorted(sites) if who == "server" else [], authority(folder))
        write_json(folder / KIT, asdict(kit))
        harden(folder, who == "server")
        kits.append(kit)
    _close(out)
    write_text(out / "README.txt", words(name, server, sites))
    return kits


def _provision(name: str, host: str, port: int, sites: Sequence[str], work: Path, days: int) -> tuple[Path, Path]:
    """Certificates and start-up files by NVFlare: the folder with a kit each, and the authority's own state."""
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    project = Project(name=name, description="Sartor federation", props={"api_version": 3})
    project.set_server(host, name, {"fed_learn_port": port, "admin_port": port})
    for site in sites:
        project.add_client(site, name, {"allow_log_streaming": False})
    project.add_admin(OPERATOR, name, {"role": "project_admin"})
    builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config"), CertBuilder(root_valid_days=days)]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        ctx = Provisioner(str(work), builders).provision(project)
    made = Path(str(ctx.get("current_prod_dir") or work / name / "prod_00"))
    need((made / host).is_dir(), f"the kits could not be made: {said.getvalue()[-300:]}")
    return made, work / name / "state"


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
        elif path.suffix in (".key", ".pfx") or PRIVATE in path.parts:
            path.chmod(0o600)


def words(name: str, server: str, sites: Sequence[str]) -> str:
    """Who gets which folder, and what must stay secret."""
    each = "\n".join(f"  {site}/  goes to site {site}, and to nobody else" for site in sites)
    return f"""The federation {name!r} on {server}.

  server/  goes to the host {server.rpartition(":")[0]}
{each}
  {PRIVATE}/  goes to nobody: with it anyone can make new members. Lock it away, off these machines.

Each folder holds a private key (startup/*.key) that says who somebody is: send a folder over a secure way only, do not
put it where others can read it, and make all kits again if one is lost.

At the server:    sartor server server --recipe recipe.toml
At a site:        sartor client {sites[0]} --data mine.csv --target outcome
"""
