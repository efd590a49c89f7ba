"""The way from a site to its server: outbound TLS to one port, through a proxy (HTTP CONNECT) if there is one.

Before NVFlare starts, and whenever it is asked why it cannot connect, a site tries the door itself: what is wrong is
then said in one line, and not looked for in NVFlare's log.
"""

from __future__ import annotations

import base64
import http.client
import select
import socket
import ssl
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cryptography import x509

from ..errors import SartorError, need, readable
from . import certificates
from .kits import Kit
from .revocation import in_use, refusing

_SECONDS = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def proxy_for(kit: Kit, asked: str | None) -> str | None:
    """The proxy that a site goes through: the one that was asked for, or HTTPS_PROXY's unless NO_PROXY excepts the
    server. A server on this machine needs none."""
    found = asked
    if asked is None:
        found = urllib.request.getproxies_environment().get("https")
        if kit.host in _LOOPBACK or urllib.request.proxy_bypass(kit.host):
            return None
    if not found:
        return None
    address = found if "://" in found else f"http://{found}"
    try:
        parts = urlsplit(address)
        good = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    need(good, f"a proxy is http://HOST:PORT, as in http://proxy.example.org:3128; got {shown(found)!r}.")
    return address


def shown(proxy: str) -> str:
    """A proxy's address without a password."""
    return proxy.rpartition("@")[2].removeprefix("http://").rstrip("/")


@dataclass(frozen=True)
class Door:
    """The server's port, as a kit sees it."""

    folder: Path
    kit: Kit
    proxy: str | None = None

    @property
    def words(self) -> str:
        """Where it is."""
        return f"{self.kit.host}:{self.kit.port}" + (f" (through {shown(self.proxy)})" if self.proxy else "")

    def closed(self) -> str:
        """Why there is no connection yet, empty where there is one; what waiting cannot mend is refused."""
        context = ssl.create_default_context(cafile=str(self.folder / "startup" / certificates.ROOT))
        context.check_hostname = False  # as NVFlare, which compares the name in the certificate itself
        context.load_cert_chain(self.folder / "startup" / "client.crt", self.folder / "startup" / "client.key")
        refusing(context, self.folder)
        try:
            with closing(self._line()) as plain:
                return self._asked(context, plain)
        except _Busy as e:
            return str(e)
        except OSError:
            return f"no server at {self.words}"

    def _asked(self, context: ssl.SSLContext, plain: socket.socket) -> str:
        """Shake hands. By TLS 1.3 a server looks at a site's certificate only then: it sends tickets, or an alert, or
        (NVFlare's) hangs up. Nothing is sent meanwhile: a server that has hung up would drop its own last word."""
        hands = False
        try:
            with context.wrap_socket(plain) as line:
                hands = True
                if line.version() != "TLSv1.3":
                    return ""
                if not select.select([line], [], [], _SECONDS)[0]:
                    return f"the server at {self.words} does not answer"
                line.setblocking(False)
                return "" if line.recv(1) else self.hung_up
        except ssl.SSLWantReadError:
            return ""
        except ssl.SSLCertVerificationError as e:
            self._explain(e)
            raise AssertionError from e
        except ssl.SSLError as e:
            if "ALERT" not in (e.reason or ""):
                return self.hung_up if hands else f"the connection to {self.words} was cut"
            raise SartorError(self._refused(e.reason)) from e
        except OSError:
            return self.hung_up if hands else f"the connection to {self.words} was cut"

    @property
    def hung_up(self) -> str:
        """What a server does that does not take this site's certificate; a proxy may do it once."""
        return f"the server at {self.words} hangs up when it sees this kit's certificate"

    def refuse(self) -> None:
        """Stop where it has hung up again and again."""
        own = certificates.read(self.folder / "startup" / "client.crt")
        raise SartorError(
            f"{self.hung_up}: it is revoked, or by the server's clock not valid (it is from {_dates(own)}). Ask the "
            "federation's authority for a new one (sartor federation request)."
        )

    def _refused(self, reason: str) -> str:
        """The server's alert in words."""
        own = certificates.read(self.folder / "startup" / "client.crt")
        if "REVOKED" in reason:
            return (
                f"the server at {self.words} refuses this kit: its certificate is revoked. Ask the federation's "
                "authority for a new one (sartor federation request)."
            )
        certificates.check_dates(own, "this kit", "Ask for a new one.")
        what = "has expired" if "EXPIRED" in reason else "is not good (not yet valid, or of another federation)"
        return (
            f"the server at {self.words} says that this kit's certificate {what}. It is valid from {_dates(own)}: is "
            "the server's clock right, and is the kit of the same federation?"
        )

    def _explain(self, error: ssl.SSLCertVerificationError) -> None:
        """Say why the server's certificate is not taken; it is fetched again, to be looked at only."""
        blind = ssl.create_default_context()
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        with closing(self._line()) as plain, blind.wrap_socket(plain) as line:
            found = x509.load_der_x509_certificate(line.getpeercert(binary_form=True) or b"")
        root = certificates.read(self.folder / "startup" / certificates.ROOT)
        issuer = readable(certificates.name_of(found.issuer), 60)
        need(
            certificates.issued_by(found, root),
            f"who answers at {self.words} has a certificate of {issuer!r}, not of this federation's authority: it is "
            "another server, or a proxy that opens TLS. Have this address excepted from it.",
        )
        certificates.check_dates(found, "the server", "It needs a new one (sartor federation rotate).")
        revoked = found in in_use(self.folder, root)
        need(not revoked, f"the server at {self.words} uses a certificate that is revoked: it needs its new kit.")
        raise SartorError(f"the server's certificate at {self.words} is not taken: {error.verify_message}.")

    def _line(self) -> socket.socket:
        """A plain connection to the server."""
        if self.proxy is None:
            return socket.create_connection((self.kit.host, self.kit.port), timeout=_SECONDS)
        parts = urlsplit(self.proxy)
        headers = {}
        if parts.username:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Proxy-Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
        asked = http.client.HTTPConnection(str(parts.hostname), parts.port or 80, timeout=_SECONDS)
        asked.set_tunnel(self.kit.host, self.kit.port, headers)
        try:
            asked.connect()
        except (OSError, http.client.HTTPException) as e:
            asked.close()
            why = readable(str(e), 100).removeprefix("Tunnel connection failed: ")
            raise _Busy(f"the proxy {shown(self.proxy)} does not connect to the server ({why})") from e
        return asked.sock


def _dates(certificate: x509.Certificate) -> str:
    return f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} to {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"


class _Busy(Exception):
    """A proxy that does not connect."""
