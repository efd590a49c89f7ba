"""Certificates of sites as kits have them, made in a moment."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from sartor.federation.masks import Identity


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(
    subject: str, key: rsa.RSAPrivateKey, issuer: str, signer: rsa.RSAPrivateKey, days: int = 30
) -> x509.Certificate:
    """Of a key, signed by another; with days < 0 it is out of date."""
    now = datetime.now(UTC)
    begin, end = (
        (now - timedelta(days=1), now + timedelta(days=days))
        if days > 0
        else (
            now + timedelta(days=2 * days),
            now + timedelta(days=days),
        )
    )
    made = (
        x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer)).public_key(key.public_key())
    )
    made = made.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    return made.sign(signer, hashes.SHA256())


@functools.cache
def identities(sites: Sequence[str], authority: str = "trial") -> dict[str, Identity]:
    """An authority, and a certificate of each site."""
    root = rsa.generate_private_key(65537, 2048)
    own = certificate(authority, root, authority, root)
    keys = {site: rsa.generate_private_key(65537, 2048) for site in sites}
    return {s: Identity(s, certificate(s, key, authority, root), key, own) for s, key in keys.items()}


def written(identity: Identity, kit: Path) -> Path:
    """The identity as a kit has it."""
    place, pem = kit / "startup", serialization.Encoding.PEM
    place.mkdir(parents=True)
    plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    (place / "client.key").write_bytes(identity.key.private_bytes(pem, *plain))
    (place / "client.crt").write_bytes(identity.certificate.public_bytes(pem))
    (place / "rootCA.pem").write_bytes(identity.authority.public_bytes(pem))
    return kit
