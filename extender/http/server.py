"""Listeners: plain HTTP on loopback for the side-car, TLS with client certificates elsewhere."""

import ipaddress
import ssl
from dataclasses import dataclass
from typing import Any, Final, Self

import structlog
from aiohttp import web

from extender.connection_limits import ConnectionLimits, listen
from extender.http.connections import USUAL, NewestConnections
from extender.http.tls import TlsFiles, follow_files, names_in

#: Above Go's 90 s, so that kube-scheduler never posts on a connection that we are closing.
KEEPALIVE_S: Final = 310.0
#: For binds in flight at shutdown; longer than one bind may take.
SHUTDOWN_S: Final = 5.0
#: How long the rest of a refused body is read before the connection is closed.
LINGER_S: Final = 1.0
#: Bytes that aiohttp reads ahead on each connection. A filter call over 5,000 names is 160 KB.
READ_AHEAD: Final = 32 * 2**10

_log = structlog.get_logger(__name__)


class ListenError(ValueError):
    """The address cannot be used; the message says what can."""


class AddressError(ListenError):
    """The address is wrong on every host."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: "127.0.0.1:8888", "[::1]:8888", ":8888" (everywhere)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address in `text`; raises AddressError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536
        if not colon or not is_port:
            raise AddressError(f"{text!r} is not an address such as 127.0.0.1:8888 or :8888")
        return cls(host or "::", int(port))

    def __str__(self) -> str:
        """The address as `parse` reads it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Listener:
    """One app on one address, which answers while it is entered. With `tls`, only the clients in
    `allowed` are answered; None: any client with a certificate signed by the client CA."""

    def __init__(
        self,
        app: web.Application,
        address: Address,
        tls: TlsFiles | None = None,
        allowed: frozenset[str] | None = frozenset(),
        limits: ConnectionLimits = USUAL,
    ) -> None:
        self.connections = NewestConnections(limits)
        if tls is not None and allowed is not None:
            app.middlewares.insert(0, _only(allowed))
        app.middlewares.insert(0, self.connections.middleware)
        self._address = address
        self._tls = tls
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=SHUTDOWN_S,
            lingering_time=LINGER_S,
            read_bufsize=READ_AHEAD,
            auto_decompress=False,
        )

    @property
    def port(self) -> int:
        """The port in use, also if 0 was requested; 0 before it is open."""
        return self.connections.port

    async def __aenter__(self) -> Self:
        """Start to answer; raises ListenError or TlsError."""
        context = self._tls.context() if self._tls else None
        await self._runner.setup()
        try:
            listening = listen(self._address.host, self._address.port)
        except OSError as error:
            raise ListenError(f"cannot listen on {self._address}: {error}") from error
        self.use(context)
        assert self._runner.server is not None
        self.connections.open(listening, self._runner.server)
        _log.info("listening", host=self._address.host, port=self.port, tls=context is not None)
        return self

    async def run(self) -> None:
        """Follow the certificate files until cancelled; returns at once if there are none."""
        if self._tls is not None:
            await follow_files(self._tls, self.use)

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, wait for calls in flight, and close."""
        await self.connections.close()
        await self._runner.cleanup()

    def use(self, context: ssl.SSLContext | None) -> None:
        """Accept with `context` from now on. The socket stays open, so no connection is refused."""
        self.connections.context = context


def check_reach(address: Address, tls: TlsFiles | None) -> None:
    """Raise ListenError if other hosts could connect without client certificates."""
    if tls is None and not address.is_loopback:
        raise ListenError(
            f"{address} can be reached from other hosts: give a serving"
            " certificate, its key and a client CA, or listen on 127.0.0.1"
        )


def _only(allowed: frozenset[str]) -> Any:
    @web.middleware
    async def check_client(request: web.Request, handler: Any) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        if allowed.isdisjoint(names_in(peer or {})):
            _log.warning("refused a client", names=sorted(names_in(peer or {}))[:4])
            return web.json_response({"Error": "this certificate may not call us"}, status=403)
        answer: web.StreamResponse = await handler(request)
        return answer

    return check_client
