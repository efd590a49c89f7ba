"""A key that never leaves its owner: a site makes it, has it signed, and puts its kit together of key and answer."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from ..errors import SartorError, need
from ..storage import write_text
from . import certificates
from .authority import OPERATOR, SERVER, Answer
from .certificates import name_of
from .kits import KIT, Kit, build, check_name, check_server, check_site, write_secret
from .revocation import Revoked
from .signing_requests import new_key, read_request, signing_request

KEY, REQUEST = "request.key", "request.csr"


def request(name: str, who: str, folder: Path) -> x509.CertificateSigningRequest:
    """A new key and its request in a folder, which may be a kit that is in use: it gets another key when it joins."""
    check_name(name)
    if who != SERVER:
        check_site(who)
    if (folder / KIT).exists():
        kit = Kit.load(folder, "server" if who == SERVER else "site")
        need(
            (kit.federation, kit.who) == (name, who),
            f"{folder} is the kit of {kit.who} in {kit.federation}, and the request is for {who} in {name}. Choose "
            "another folder with --out.",
        )
    need(
        not (folder / KEY).exists(),
        f"{folder} holds a key that waits for its answer already: send {folder / REQUEST}. If it is lost, remove "
        f"{folder / KEY} first.",
    )
    key = new_key()
    made = signing_request(key, name, who)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(folder / KEY, certificates.key_text(key))
    except OSError as e:
        raise SartorError(f"cannot write {folder}: {e.strerror}. Choose another folder with --out.") from e
    write_text(folder / REQUEST, made.public_bytes(serialization.Encoding.PEM).decode())
    return made


def join(folder: Path, answer: Path) -> Kit:
    """Put a kit together of the key in a folder and the authority's answer, if they belong together."""
    need(
        (folder / KEY).is_file() and (folder / REQUEST).is_file(),
        f"{folder} holds no key that waits for an answer ({KEY}, {REQUEST}): sartor federation request makes it.",
    )
    key, asked, found = certificates.read_key(folder / KEY), read_request(folder / REQUEST), Answer.load(answer)
    who, name = name_of(asked.subject), name_of(asked.subject, NameOID.ORGANIZATION_NAME)
    need(
        (found.who, found.federation) == (who, name),
        f"{answer} is for {found.who} in {found.federation}, and the key in {folder} is for {who} in {name}: these "
        "parts do not belong together.",
    )
    own = _checked(found, answer)
    same = all(part.public_key() == key.public_key() for part in own)
    need(
        same,
        f"{answer} is for another key than the one in {folder}: these parts do not belong together. Send "
        f"{folder / REQUEST} again.",
    )
    if (folder / KIT).exists():
        before = Kit.load(folder, "server" if who == SERVER else "site").authority
        pin = certificates.fingerprint(x509.load_pem_x509_certificate(found.authority.encode()))
        need(before == pin, f"{answer} is by another authority ({pin[:8]}) than the kit in {folder} ({before[:8]}).")
    kit = build(folder, found, key)
    for part in (KEY, REQUEST):
        (folder / part).unlink()
    return kit


def _checked(answer: Answer, path: Path) -> list[x509.Certificate]:
    """The certificates of an answer, if they are what the answer says."""
    server = answer.who == SERVER
    check_server(f"{answer.host}:{answer.port}")
    for site in answer.sites:
        check_site(site)
    try:
        root = x509.load_pem_x509_certificate(answer.authority.encode())
        own = {answer.host if server else answer.who: x509.load_pem_x509_certificate(answer.certificate.encode())}
        if server:
            own[OPERATOR] = x509.load_pem_x509_certificate(answer.operator.encode())
    except ValueError as e:
        raise SartorError(f"{path} holds no certificate that can be read: ask for it again.") from e
    revoked = Revoked.of(answer.revoked, root, f"the list of revoked certificates in {path}")
    for name, certificate in own.items():
        good = certificates.issued_by(certificate, root) and name_of(certificate.subject) == name
        need(good, f"{path} holds a certificate of somebody else, or one that its authority has not signed: ask again.")
        certificates.check_dates(certificate, answer.who, "Ask for a new one.")
        need(certificate not in revoked, f"the certificate in {path} is revoked already (list {revoked.number}).")
    return list(own.values())
