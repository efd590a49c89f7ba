"""Who is in a federation: sites are added, removed, revoked, and get new keys, between its runs or during one.

A folder of `sartor federation init` holds the authority and, if all keys were made in one place, the kits: these are
then changed as well. Where the authority is elsewhere, the server's own list is in the server's kit.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from ..errors import need, unknown
from ..storage import write_json, write_text
from .authority import PRIVATE, SERVER, Answer, Authority
from .certificates import name_of
from .kits import KIT, Kit, check_site, own_kit
from .revocation import LIST, Revoked
from .signing_requests import read_request


def _is_server(folder: Path) -> bool:
    """Whether a folder is the server's kit, and not one with the authority."""
    return (folder / KIT).is_file() and not (folder / PRIVATE).is_dir()


def add(folder: Path, site: str) -> list[str]:
    """Take a site onto the list, or lists, that a folder has; with a kit of its own where all keys are made there."""
    check_site(site)
    if _is_server(folder):
        kit = Kit.load(folder, SERVER)
        need(site not in kit.sites, f"site {site} is on the server's list already.")
        _relist(folder, [*kit.sites, site])
        return [
            f"site {site} is on the server's list; it takes part in the next run, with a certificate of the authority"
        ]
    signer = Authority.load(folder)
    signer.add(site)
    if not (folder / SERVER / KIT).is_file():
        return [
            f"site {site} may be signed now: sartor federation sign {folder} REQUEST --out FILE",
            f"at the server: sartor federation add KIT {site}",
        ]
    _relist(folder / SERVER, signer.book.sites)
    own_kit(signer, site, folder / site)
    return [f"{folder / site}/ goes to site {site}, and to nobody else", _SEND_LIST.format(folder=folder)]


def remove(folder: Path, site: str) -> list[str]:
    """Take a site off the list; its certificate stays good, so it can be added again."""
    if _is_server(folder):
        kit = Kit.load(folder, SERVER)
        if site not in kit.sites:
            raise unknown("site on the server's list", site, kit.sites)
        _relist(folder, [s for s in kit.sites if s != site])
        return [f"site {site} is off the server's list. Its certificate is still good: the authority can revoke it"]
    signer = Authority.load(folder)
    signer.remove(site)
    said = [f"site {site} is off the list. Its certificate is still good: sartor federation revoke {folder} {site}"]
    if (folder / SERVER / KIT).is_file():
        _relist(folder / SERVER, signer.book.sites)
        return [*said, _SEND_LIST.format(folder=folder)]
    return [*said, f"at the server: sartor federation remove KIT {site}"]


def revoke(folder: Path, site: str) -> list[str]:
    """Take a site's certificates out of use for good."""
    need(site != SERVER, "a federation needs its server: sartor federation rotate gives it a new key.")
    signer = Authority.load(folder)
    found = signer.revoke(site)
    return [
        f"the certificate of site {site} is revoked, and the site is off the list",
        *_told(folder, signer, found, site),
    ]


def rotate(folder: Path, who: str, request: Path | None = None) -> tuple[Answer | None, list[str]]:
    """A new certificate in place of the old one, which is revoked: for a new key that its owner made (`request`), or
    with a key made here."""
    signer = Authority.load(folder)
    if request is None:
        need(
            (folder / who / KIT).is_file(),
            f"{folder} has no kit of {who}: its key was made elsewhere. It makes a new one with sartor federation "
            f"request, and you sign it with --request FILE --out FILE.",
        )
        kit = own_kit(signer, who, folder / who, instead=True)
        said = [f"{folder / kit.who}/ has a new key and goes to {who}, and to nobody else; what it has played stays"]
        return None, [*said, *_told(folder, signer, signer.revoked())]
    asked = read_request(request)
    need(name_of(asked.subject) == who, f"{request} is a request of {name_of(asked.subject)!r}, not of {who}.")
    answer = signer.sign(asked, instead=True)
    return answer, _told(folder, signer, signer.revoked())


_SEND_LIST = "give {folder}/server/kit.json to the server, for its kit"


def _told(folder: Path, signer: Authority, found: Revoked, gone: str = "") -> list[str]:
    """Put a new list into the kits that are there, and say who else must have it."""
    write_text(folder / LIST, found.text)
    for path in folder.glob(f"*/{KIT}"):
        write_text(path.with_name(LIST), found.text)
    if (folder / SERVER / KIT).is_file():
        _relist(folder / SERVER, signer.book.sites)
    said = [
        f"{folder / LIST} is list {found.number} of revoked certificates: put it into the server's kit, and start the "
        "server again; it gives the list to the sites"
    ]
    return [*said, f"at the server: sartor federation remove KIT {gone}"] if gone else said


def _relist(kit: Path, sites: list[str]) -> None:
    write_json(kit / KIT, asdict(replace(Kit.load(kit, SERVER), sites=sorted(sites))))
