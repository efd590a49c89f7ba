"""A federation's authority: the key in keep-apart/ that signs certificates, and a book of those it has signed.

It needs no network and no member's key: a site makes its own key and sends a signing request (PKCS #10), the authority
answers with a certificate and the rest of what is public (Answer). So it can stay on a machine that is never online.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from pydantic import BaseModel, ConfigDict

from ..errors import SartorError, need, unknown
from ..storage import read_json, write_json, write_text
from . import certificates
from .certificates import name_of
from .revocation import LIST, NOBODY, Revoked, signed
from .signing_requests import new_key

PRIVATE = "keep-apart"
OPERATOR = "operator@sartor.local"  # who submits the job: the server's own supervisor, from the server's kit
SERVER = "server"
_STATE, _BOOK = "cert.json", "book.json"
_YEARS = 3650  # days for which an authority is valid, at least: certificates are renewed, the authority is not
_SKEW = timedelta(hours=1)  # by which clocks may differ on the first day


class Answer(BaseModel):
    """What the authority answers to a request: all of it is public, and with the site's key it is a kit."""

    model_config = ConfigDict(extra="forbid", strict=True)

    federation: str
    who: str  # "server" or a site's name
    host: str
    port: int
    sites: list[str]  # the server's list, empty for a site
    certificate: str
    operator: str  # of the server's operator, empty for a site
    authority: str
    revoked: str

    @classmethod
    def load(cls, path: Path) -> Answer:
        """From a file; refused where it is none."""
        return cls(**read_json(path, cls))


class _Signed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    serial: str  # in hexadecimal digits
    until: str
    revoked: bool


class Book(BaseModel):
    """What an authority knows of its federation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    federation: str
    host: str
    port: int
    days: int
    sites: list[str]
    number: int  # of the newest list of revoked certificates
    signed: dict[str, list[_Signed]]


@dataclass
class Authority:
    """The authority in a folder."""

    place: Path
    certificate: x509.Certificate
    key: rsa.RSAPrivateKey = field(repr=False)
    book: Book

    @classmethod
    def create(cls, folder: Path, name: str, host: str, port: int, sites: list[str], days: int) -> Authority:
        """A new one, which has signed nothing yet."""
        from nvflare.lighter.utils import Identity, generate_cert

        place, key, now = folder / PRIVATE, new_key(), datetime.now(UTC)
        own = Identity(name)
        last = min(now + timedelta(days=max(days, _YEARS)), datetime(9999, 12, 30, tzinfo=UTC))
        dates = {"not_valid_before": now - _SKEW, "not_valid_after": last}
        certificate = generate_cert(own, own, key, key.public_key(), ca=True, **dates)
        place.mkdir(parents=True, mode=0o700)
        state = {"root_cert": certificates.text(certificate), "root_pri_key": certificates.key_text(key)}
        book = Book(federation=name, host=host, port=port, days=days, sites=sorted(sites), number=0, signed={})
        write_json(place / _STATE, state)  # as NVFlare's own provisioning keeps it
        (place / _STATE).chmod(0o600)
        found = cls(place, certificate, key, book)
        found._keep()
        return found

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """From the folder of a federation, or from keep-apart/ wherever it is kept."""
        place = folder / PRIVATE if (folder / PRIVATE).is_dir() else folder
        need(
            (place / _STATE).is_file() and (place / _BOOK).is_file(),
            f"{folder} is not an authority's folder: it has no {PRIVATE}/ with {_STATE} and {_BOOK}. Sign where the "
            "authority is kept, or name the folder that sartor federation init has made.",
        )
        state, book = read_json(place / _STATE, dict[str, Any]), Book(**read_json(place / _BOOK, Book))
        missing = f"{place} is an authority's folder without its key ({_STATE} cannot be used)"
        need(bool(state.get("root_pri_key")), f"{missing}: nothing can be signed here. Use the folder that has it.")
        try:
            from cryptography.hazmat.primitives.serialization import load_pem_private_key

            certificate = x509.load_pem_x509_certificate(str(state["root_cert"]).encode())
            key = load_pem_private_key(str(state["root_pri_key"]).encode(), None)
        except (KeyError, ValueError, TypeError) as e:
            raise SartorError(f"{missing}: {e}.") from e
        same = isinstance(key, rsa.RSAPrivateKey) and key.public_key() == certificate.public_key()
        need(same, f"{missing}: the key is not that of its certificate.")
        assert isinstance(key, rsa.RSAPrivateKey)
        certificates.check_dates(certificate, "the authority", "Make a new federation.")
        return cls(place, certificate, key, book)

    def _keep(self) -> None:
        write_json(self.place / _BOOK, self.book.model_dump())
        (self.place / _BOOK).chmod(0o600)

    # --- signing ------------------------------------------------------------------------------------------------------

    def sign(self, request: x509.CertificateSigningRequest, instead: bool = False) -> Answer:
        """A certificate for a request; `instead` of those that its name has, which are revoked."""
        who = self._asked(request)
        key = request.public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        valid = self._valid(who)
        need(
            instead or not valid,
            f"the name {who} is taken: it has a certificate until {valid[0].until if valid else ''}. If this request "
            f"is its new key, sign it with sartor federation rotate {self.place.parent} {who} --request FILE; else "
            "somebody else must choose another name.",
        )
        if instead:
            self._revoke(who)
        server = who == SERVER
        certificate = self._issue(who, self.book.host if server else who, key)
        operator = self._issue(who, OPERATOR, key) if server else None
        self._keep()
        return Answer(
            federation=self.book.federation,
            who=who,
            host=self.book.host,
            port=self.book.port,
            sites=self.book.sites if server else [],
            certificate=certificates.text(certificate),
            operator="" if operator is None else certificates.text(operator),
            authority=certificates.text(self.certificate),
            revoked=self.revoked().text,
        )

    def _asked(self, request: x509.CertificateSigningRequest) -> str:
        """The name that a request is for; refused where it cannot be signed here."""
        who, federation = name_of(request.subject), name_of(request.subject, NameOID.ORGANIZATION_NAME)
        need(request.is_signature_valid, "the request is not signed with its own key: it was changed on its way.")
        need(
            federation == self.book.federation,
            f"the request is for the federation {federation!r}, and this is the authority of "
            f"{self.book.federation!r}. Make it again with --name {self.book.federation}.",
        )
        if who != SERVER and who not in self.book.sites:
            do = f"A new site is added with sartor federation add {self.place.parent} NAME."
            raise unknown(f"site of {federation}", who, [SERVER, *self.book.sites], do)
        key = request.public_key()
        good = isinstance(key, rsa.RSAPublicKey) and key.key_size >= 2048
        need(
            good,
            "the request has another key than RSA with at least 2048 bits: make it with sartor federation request.",
        )
        return who

    def _issue(self, who: str, name: str, key: rsa.RSAPublicKey) -> x509.Certificate:
        """A certificate as NVFlare has them, for one purpose each."""
        from nvflare.lighter.utils import Identity, generate_cert

        now, purpose = datetime.now(UTC), ExtendedKeyUsageOID
        until = min(now + timedelta(days=self.book.days), self.certificate.not_valid_after_utc)
        host = name == self.book.host and who == SERVER
        use = x509.ExtendedKeyUsage([purpose.SERVER_AUTH if host else purpose.CLIENT_AUTH])
        made: x509.Certificate = generate_cert(
            Identity(name, self.book.federation, "project_admin" if name == OPERATOR else None),
            Identity(name_of(self.certificate.subject)),
            self.key,
            key,
            server_default_host=name if host else None,
            not_valid_before=now - _SKEW,
            not_valid_after=until,
            extra_extensions=[(x509.BasicConstraints(ca=False, path_length=None), True), (use, False)],
        )
        line = _Signed(serial=f"{made.serial_number:x}", until=f"{until:%Y-%m-%d}", revoked=False)
        self.book.signed.setdefault(who, []).append(line)
        return made

    def _valid(self, who: str) -> list[_Signed]:
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        return [s for s in self.book.signed.get(who, []) if not s.revoked and s.until >= today]

    # --- membership ---------------------------------------------------------------------------------------------------

    def add(self, site: str) -> None:
        """Take a site onto the list of those whose requests are signed."""
        need(site not in self.book.sites, f"site {site} is on the list of {self.book.federation} already.")
        self.book.sites = sorted([*self.book.sites, site])
        self._keep()

    def remove(self, site: str) -> None:
        """Take a site off the list; its certificate stays valid."""
        self._check_site(site)
        self.book.sites.remove(site)
        self._keep()

    def revoke(self, site: str) -> Revoked:
        """Take a site off the list, and its certificates out of use."""
        on_list = site in self.book.sites
        if not on_list:
            need(bool(self._valid(site)), f"site {site} has no certificate that is valid: there is nothing to revoke.")
        self._revoke(site)
        if on_list:
            self.book.sites.remove(site)
        self._keep()
        return self.revoked()

    def _check_site(self, site: str) -> None:
        if site not in self.book.sites:
            raise unknown(f"site of {self.book.federation}", site, self.book.sites)

    def _revoke(self, who: str) -> None:
        """A new list, with all certificates of this name."""
        for line in self.book.signed.get(who, []):
            line.revoked = True
        serials = [int(s.serial, 16) for lines in self.book.signed.values() for s in lines if s.revoked]
        self.book.number += 1
        made = signed(serials, self.book.number, self.certificate, self.key)
        self._keep()  # first the number: a list that was lost is made again with the next one
        write_text(self.place / LIST, made.text)

    def revoked(self) -> Revoked:
        """The newest list."""
        with contextlib.suppress(FileNotFoundError):
            return Revoked.of((self.place / LIST).read_text(), self.certificate, str(self.place / LIST))
        return NOBODY
