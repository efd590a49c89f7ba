"""Certificates that are no longer accepted: a list (an X.509 CRL) signed by the authority, whose number only grows.

It lies in every kit as revoked.pem. The server refuses these certificates in the TLS handshake, and so do sites if they
are the server's; keys for secure aggregation that they have signed are refused by all. Sites get the server's list in
each welcome, and keep the newest that they have seen.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ..errors import SartorError, need
from ..storage import read_json, write_json, write_text

LIST = "revoked.pem"
LONGEST = 1 << 20  # characters of a list that is read: some ten thousand certificates
_SEEN = "play/revoked.json"  # in a kit: the number of the newest list that was in use
_SKEW = timedelta(hours=1)  # by which clocks may differ when a list or a certificate is new


@dataclass(frozen=True)
class Revoked:
    """A list that was verified; number 0 has nobody on it, and is not written."""

    number: int = 0
    serials: frozenset[int] = frozenset()
    text: str = ""

    @classmethod
    def of(cls, text: str, authority: x509.Certificate, where: str) -> Revoked:
        """Read a list; refused where the authority has not signed it as it stands."""
        if not text:
            return NOBODY
        try:
            need(len(text) <= LONGEST, "too long")
            found = x509.load_pem_x509_crl(text.encode())
            key = authority.public_key()
            if not isinstance(key, rsa.RSAPublicKey) or not found.is_signature_valid(key):
                raise ValueError("signed by somebody else")
            number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as e:
            raise SartorError(
                f"{where} is not signed by this federation's authority: it was changed, or is another federation's. "
                "Ask for the newest list."
            ) from e
        return cls(number, frozenset(entry.serial_number for entry in found), text)

    def __contains__(self, certificate: object) -> bool:
        return isinstance(certificate, x509.Certificate) and certificate.serial_number in self.serials


NOBODY = Revoked()


def signed(serials: Iterable[int], number: int, authority: x509.Certificate, key: rsa.RSAPrivateKey) -> Revoked:
    """A new list. It holds as long as the authority does: what counts is its number, not its age."""
    now = datetime.now(UTC)
    made = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    made = made.last_update(now - _SKEW).next_update(authority.not_valid_after_utc)
    made = made.add_extension(x509.CRLNumber(number), critical=False)
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    listed = frozenset(serials)
    for serial in sorted(listed):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - _SKEW).build()
        made = made.add_revoked_certificate(entry)
    text = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    return Revoked(number, listed, text)


def in_use(kit: Path, authority: x509.Certificate) -> Revoked:
    """The list of a kit. Its number is remembered: no older list takes its place."""
    path = kit / LIST
    try:
        text = path.read_text(encoding="ascii") if path.exists() else ""
    except (OSError, ValueError) as e:
        raise SartorError(f"{path} cannot be read. Ask for the newest list of revoked certificates.") from e
    found, seen = Revoked.of(text, authority, str(path)), kit / _SEEN
    before = int(read_json(seen, int)) if seen.exists() else 0
    need(
        found.number >= before,
        f"{path} is {f'list {found.number}' if found.number else 'no list'} of revoked certificates, and list {before} "
        "was in use here: an older one cannot take its place. Ask for the newest.",
    )
    if found.number > before:
        write_json(seen, found.number)
    return found


def newer(kit: Path, text: str, authority: x509.Certificate) -> tuple[Revoked, Revoked]:
    """The list of a kit, and the one that the server sends, which is kept if it is newer."""
    sent = Revoked.of(text, authority, "the server's list of revoked certificates")
    own = in_use(kit, authority)
    if sent.number > own.number:
        write_text(kit / LIST, sent.text)
        return in_use(kit, authority), sent
    return own, sent


def refusing(context: ssl.SSLContext, kit: Path) -> None:
    """Have a TLS context refuse the certificates on a kit's list, if it has one."""
    if (kit / LIST).exists():
        context.load_verify_locations(kit / LIST)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
