"""Certificates of a federation: who they are for, who signed them, whether they are valid now."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from ..errors import SartorError, need

ROOT = "rootCA.pem"  # in a kit's startup folder: the authority that it trusts
_PEM = serialization.Encoding.PEM


def read(path: Path) -> x509.Certificate:
    """The certificate in a file of a kit."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as e:
        raise SartorError(f"{path} cannot be read: the kit is incomplete.") from e


def text(certificate: x509.Certificate) -> str:
    """As a file has it."""
    return certificate.public_bytes(_PEM).decode()


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the whole, in hexadecimal digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def key_words(key: CertificatePublicKeyTypes) -> str:
    """A key's fingerprint for people, who read it to each other: 128 bits of SHA-256, in groups of four digits."""
    found = hashes.Hash(hashes.SHA256())
    found.update(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    digits = found.finalize().hex()[:32]
    return " ".join(digits[i : i + 4] for i in range(0, 32, 4))


def name_of(subject: x509.Name, what: x509.ObjectIdentifier = NameOID.COMMON_NAME) -> str:
    """The common name, or another part of the name; empty where there is none, or more than one."""
    found = subject.get_attributes_for_oid(what)
    return str(found[0].value) if len(found) == 1 else ""


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority has signed this."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def read_key(path: Path) -> rsa.RSAPrivateKey:
    """A private key that NVFlare can use: it signs with RSA."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as e:
        raise SartorError(f"{path} holds no private key that can be read.") from e
    if not isinstance(key, rsa.RSAPrivateKey):
        raise SartorError(f"{path} holds a key of another kind than RSA, which NVFlare needs.")
    return key


def key_text(key: rsa.RSAPrivateKey) -> str:
    """As a file has it."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(_PEM, form, serialization.NoEncryption()).decode()


def check_dates(certificate: x509.Certificate, whose: str, do: str) -> None:
    """Refuse a certificate that is not valid now, which is also how a wrong clock shows: both times are said."""
    now, begin, end = datetime.now(UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    clock = f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC"
    need(now <= end, f"the certificate of {whose} expired on {end:%Y-%m-%d %H:%M} UTC, and {clock}. {do}")
    need(
        now >= begin,
        f"the certificate of {whose} is valid from {begin:%Y-%m-%d %H:%M} UTC, and {clock}. Set the clock.",
    )
