"""Masks that cancel in the sum: what a site sends in a round with secure aggregation is a uniformly random vector.

    site u:   y_u = q_u + Σ_{v>u} G(k_uv) − Σ_{v<u} G(k_uv) + G(b_u)   mod 2^b      (q_u: secure_sum.py's whole numbers
                                                                       of b bits: 64; on a common grid 32 or 16)
    server:   Σ_u y_u − Σ_u G(b_u) = Σ_u q_u                           exactly, once all of the round's sites are there

k_uv is a key that sites u and v share: X25519 of the keys that they drew for this run, each signed with its site's own
certificate, so that a server cannot put its own in their place. b_u is u's own: it is told when the server says that
all have answered ("unmask"), and in a round for one set of sites only. So of the sums of two sets the server can open
one; their difference, which would be a single message, it cannot. Both keys depend on run, stage, round and the set of
sites, b_u also on which of u's clients were asked: a server that asks for one client fewer learns no difference either.
G is ChaCha20's key stream. If a site does not answer, the round is repeated with the others, under other keys.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

from ..errors import Refused, SartorError
from ..storage import read_json, write_json
from . import certificates
from .revocation import NOBODY, Revoked, in_use, newer
from .rounds.masking import SumOf

OPENED = "opened.json"  # of a run at a site: the last round whose sum it helped to open, and for whom
_SECRET = "mask.key"
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
_SITES = 4096  # of a federation
_ZEROS = bytes(1 << 16)


class SignedKey(NamedTuple):
    """A site's key for a run, and who says so; texts, as they travel."""

    public: str
    certificate: str
    signature: str

    @classmethod
    def of(cls, note: Any) -> SignedKey:
        """Read a note; refused where it is none."""
        good = isinstance(note, list) and len(note) == 3 and all(isinstance(v, str) and len(v) < 8192 for v in note)
        if not good:
            raise SartorError("no signed key")
        return cls(*note)


@dataclass(frozen=True)
class Identity:
    """A site's certificate and key, and the authority that it trusts: those of its kit."""

    site: str
    certificate: x509.Certificate
    key: rsa.RSAPrivateKey
    authority: x509.Certificate
    revoked: Revoked = NOBODY
    kit: Path | None = None

    @classmethod
    def load(cls, kit: Path, site: str) -> Identity:
        """From a kit."""
        startup, authority = kit / "startup", authority_of(kit)
        certificate, key = certificates.read(startup / "client.crt"), certificates.read_key(startup / "client.key")
        return cls(site, certificate, key, authority, in_use(kit, authority), kit)

    def told(self, text: str, log: Callable[[str], None]) -> Identity:
        """With the server's list of revoked certificates, if it is newer than this site's own; else with its own."""
        if self.kit is None:
            return self
        own, sent = newer(self.kit, text, self.authority)
        if sent.number < own.number:
            log(
                f"the server has list {sent.number} of revoked certificates; this site keeps its own, list {own.number}"
            )
        return replace(self, revoked=own)

    def sign(self, run: str, public: bytes) -> SignedKey:
        """A key of this site for a run."""
        signature = self.key.sign(_statement(run, self.site, public), _PSS, hashes.SHA256())
        der = self.certificate.public_bytes(serialization.Encoding.DER)
        return SignedKey(*(b64encode(data).decode() for data in (public, der, signature)))


def authority_of(kit: Path) -> x509.Certificate:
    """The authority that a kit trusts."""
    return certificates.read(kit / "startup" / certificates.ROOT)


def _statement(run: str, site: str, public: bytes) -> bytes:
    return b"\n".join([b"sartor: a key for secure aggregation", run.encode(), site.encode(), public])


def verified(run: str, site: str, key: SignedKey, authority: x509.Certificate, revoked: Revoked) -> bytes:
    """The public key that this site has drawn for this run; refused where somebody else says so."""
    try:
        public, der, signature = (b64decode(text, validate=True) for text in key)
        certificate = x509.load_der_x509_certificate(der)
        certificate.verify_directly_issued_by(authority)
        if certificate in revoked:
            raise _Revoked(
                f"the key of site {site} is signed with a certificate that is revoked (list {revoked.number})"
            )
        (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        signer = certificate.public_key()
        now = datetime.now(UTC)
        valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
        if name.value != site or not isinstance(signer, rsa.RSAPublicKey) or len(public) != 32 or not valid:
            raise ValueError("of another site, another kind, or out of date")
        signer.verify(signature, _statement(run, site, public), _PSS, hashes.SHA256())
    except _Revoked:
        raise
    except (ValueError, TypeError, InvalidSignature) as e:
        raise SartorError(f"the key of site {site} is not signed by that site's certificate") from e
    return public


class _Revoked(SartorError):
    """It was the site's certificate, and is no longer."""


def set_of(run: str, of: SumOf, keys: Mapping[str, bytes]) -> bytes:
    """What names a sum of these sites with these keys: no two of them have the same masks."""
    found = hashlib.sha256(f"{run}\n{of.stage}\n{of.round}\n".encode())
    for site, public in sorted(keys.items()):
        found.update(f"{site}\n".encode() + public)
    return found.digest()


def add_stream(words: np.ndarray, key: bytes, sign: int) -> None:
    """words ± G(key), in place, modulo their own size; piece by piece, each as long as the cache likes it."""
    source, piece = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor(), bytearray(len(_ZEROS))
    drawn = np.frombuffer(piece, words.dtype)
    for at in range(0, len(words), len(drawn)):
        part = words[at : at + len(drawn)]
        source.update_into(_ZEROS, piece)
        (np.add if sign > 0 else np.subtract)(part, drawn[: len(part)], out=part)


def _derived(secret: bytes, what: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, None, b"sartor mask 1 " + what).derive(secret)


def _lined_up(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first rows of all arrays [c, ...], one after the other by name: one vector of words without a sign."""
    words = np.concatenate([arrays[name][0].reshape(-1) for name in sorted(arrays)])
    return words.astype(f"<i{words.itemsize}", copy=False).view(f"<u{words.itemsize}")


def _put_back(words: np.ndarray, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays like these, with the words in their first rows and nothing in the others."""
    out, at = {}, 0
    for name in sorted(arrays):
        width, shape = arrays[name][0].size, arrays[name].shape
        first = words[at : at + width].view(f"<i{words.itemsize}").reshape(1, *shape[1:])
        others = np.zeros((shape[0] - 1, *shape[1:]), first.dtype)
        out[name], at = np.concatenate([first, others]) if len(others) else first, at + width
    return out


class SiteMasks:
    """A site's half, for one run. What it draws stays in the run's folder, so that a killed site goes on."""

    def __init__(self, folder: Path, run: str, identity: Identity, least: int) -> None:
        self.folder, self.run, self.identity, self.least = folder, run, identity, least
        self.most = _SITES * 8192  # bytes of signed keys in a request
        self._known: dict[str, tuple[SignedKey, bytes]] = {}

    def _secret(self) -> X25519PrivateKey:
        place = self.folder / _SECRET
        if not place.exists():
            drawn = X25519PrivateKey.generate().private_bytes_raw()
            write_json(place, b64encode(drawn).decode())
            place.chmod(0o600)
        return X25519PrivateKey.from_private_bytes(b64decode(read_json(place)))

    def signed_key(self) -> SignedKey:
        """This site's key for the run."""
        return self.identity.sign(self.run, self._secret().public_key().public_bytes_raw())

    def _peers(self, note: Any) -> dict[str, bytes]:
        """Everybody's public key, each verified; this site's own among them."""
        if not isinstance(note, dict) or not self.least <= len(note) <= _SITES:
            raise Refused("limit", f"a sum of fewer than {self.least} sites would tell single messages", "secure_sites")
        found = {}
        for site, told in note.items():
            key = SignedKey.of(told)
            if self._known.get(site, (None,))[0] != key:
                try:
                    self._known[site] = (
                        key,
                        verified(self.run, site, key, self.identity.authority, self.identity.revoked),
                    )
                except SartorError as e:
                    raise Refused("limit", f"the server sends a false key: {e}", "secure_keys") from e
            found[site] = self._known[site][1]
        mine = self._secret().public_key().public_bytes_raw()
        if found.get(self.identity.site) != mine or len(set(found.values())) != len(found):
            raise Refused("limit", "the server sends another key in this site's name, or one key twice", "secure_keys")
        return found

    def masked(self, of: SumOf, note: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """This site's sum over its clients in the first row, under all masks of a round with these sites."""
        peers, own = self._peers(note), self.identity.site
        which = set_of(self.run, of, peers)
        self._check_open(of, which)
        together = {
            name: rows if len(rows) == 1 else rows.sum(0, keepdims=True, dtype=rows.dtype)
            for name, rows in arrays.items()
        }
        words, secret = _lined_up(together), self._secret()
        add_stream(words, self._own_seed(of, which), 1)
        for site, public in peers.items():
            if site != own:
                shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
                add_stream(words, _derived(shared, which), 1 if site > own else -1)
        return _put_back(words, arrays)

    def opened(self, of: SumOf, note: Any) -> bytes:
        """b_u for a sum of these sites; in this round it is told for no other."""
        which = set_of(self.run, of, self._peers(note))
        self._check_open(of, which)
        write_json(self._place(of), {"round": of.round, "set": which.hex(), "asked": of.asked})
        return self._own_seed(of, which)

    def _own_seed(self, of: SumOf, which: bytes) -> bytes:
        asked = hashlib.sha256(of.asked.encode()).digest()
        return _derived(self._secret().private_bytes_raw(), b"own " + which + asked)

    def _place(self, of: SumOf) -> Path:
        return self.folder / (OPENED if of.stage == "train" else f"opened-{of.stage}.json")

    def _check_open(self, of: SumOf, which: bytes) -> None:
        place = self._place(of)
        before: dict[str, Any] = read_json(place) if place.exists() else {"round": -1}
        same = (which.hex(), of.asked) == (before.get("set"), before.get("asked"))
        if of.round < before["round"] or (of.round == before["round"] and not same):
            opened = f"the sum of round {before['round'] + 1} is open already"
            raise Refused("changed", f"{opened}, of other sites or clients")


class ServerMasks:
    """The server's half: everybody's keys, and taking off the masks that do not cancel."""

    def __init__(self, run: str, least: int, authority: x509.Certificate, revoked: Revoked = NOBODY) -> None:
        self.run, self.least, self.authority, self.revoked = run, least, authority, revoked
        self._keys: dict[str, SignedKey] = {}

    @property
    def keys(self) -> Mapping[str, SignedKey]:
        return self._keys

    def take(self, site: str, note: Any) -> None:
        """A site's key, from what it says when it is ready; refused where it is not signed as it must be."""
        key = SignedKey.of(note)
        verified(self.run, site, key, self.authority, self.revoked)
        self._keys[site] = key

    def told(self, sites: list[str]) -> dict[str, list[str]]:
        """What each of these sites is told of all of them."""
        return {site: list(self.keys[site]) for site in sorted(sites)}

    def opened(self, arrays: Mapping[str, np.ndarray], seed: bytes) -> dict[str, np.ndarray]:
        """One site's rows without its own mask; those of the pairs cancel in the sum."""
        words = _lined_up(arrays)
        add_stream(words, seed, -1)
        return _put_back(words, arrays)
