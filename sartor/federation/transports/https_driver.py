"""NVFlare's own driver for HTTPS with two additions: revoked certificates are refused in the handshake, and a site may
be behind a proxy (HTTP CONNECT). NVFlare's processes register it before they open a connection; the bytes are the same.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import aiohttp
from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.drivers.aio_http_driver import WS_PATH, AioHttpDriver
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverParams

from ..revocation import refusing

PROXY = "SARTOR_PROXY"  # in the environment of a site's process: the proxy's address
CUT = "the connection to the server has ended"  # in its log


class ListedHttpDriver(AioHttpDriver):  # type: ignore[misc]
    """Looks at the list that lies in the kit, beside the folder with the authority's certificate."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """What the driver makes connections with; each that it sets is given the list."""
        return self._context

    @ssl_context.setter
    def ssl_context(self, context: ssl.SSLContext | None) -> None:
        if context is not None:
            refusing(context, Path(self.connector.params[DriverParams.CA_CERT.value]).parents[1])
        self._context = context

    def connect(self, connector: ConnectorInfo) -> None:
        """As NVFlare does, through the proxy if there is one."""
        self.connector = connector
        self.ssl_context = net_utils.get_ssl_context(connector.params, False)
        self.aio_context.run_coro(self._dial(connector.params)).result()
        print(CUT, flush=True)

    async def _dial(self, params: dict[str, Any]) -> None:
        host, port = (params.get(name.value) for name in (DriverParams.HOST, DriverParams.PORT))
        url, proxy = f"{'wss' if self.ssl_context else 'ws'}://{host}:{port}/{WS_PATH}", os.environ.get(PROXY)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, ssl=self.ssl_context or True, proxy=proxy) as line,
        ):
            await self._connection_handler(line)


def register() -> None:
    """Put it in the place of NVFlare's, which is then passed over."""
    communicator.driver_mgr.register(ListedHttpDriver)
    communicator.driver_mgr.class_cache.add(AioHttpDriver.__name__)
