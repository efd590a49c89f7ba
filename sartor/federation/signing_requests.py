"""Requests (PKCS #10) that a key be certified: what a member sends to the authority."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from ..errors import SartorError
from .certificates import key_words, name_of

KEY_BITS = 3072


def new_key() -> rsa.RSAPrivateKey:
    """A private key of a member. RSA, as NVFlare's own messages are signed with it."""
    return rsa.generate_private_key(65537, KEY_BITS)


def signing_request(key: rsa.RSAPrivateKey, federation: str, who: str) -> x509.CertificateSigningRequest:
    """The request that a key be certified as this member's."""
    names = [x509.NameAttribute(NameOID.COMMON_NAME, who), x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation)]
    return x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(key, hashes.SHA256())


def read_request(path: Path) -> x509.CertificateSigningRequest:
    """A signing request from a file."""
    try:
        return x509.load_pem_x509_csr(path.read_bytes())
    except (OSError, ValueError) as e:
        raise SartorError(f"{path} is not a signing request: sartor federation request makes one.") from e


def words(request: x509.CertificateSigningRequest) -> str:
    """What a request's two sides compare."""
    return f"the key of {name_of(request.subject)} has the fingerprint {key_words(request.public_key())}"
