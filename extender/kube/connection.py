"""Address, TLS and credentials of one API server, from kubeconfig or the pod's service account.

`kubernetes_asyncio` reads the configuration (contexts, exec plugins, OIDC, token files); its
transport, watch and models are not used. Credentials are read again after a 401, and the CA file
when the server's certificate is not trusted.
"""

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml

from extender.kube import config_reader
from extender.kube.errors import Misconfigured, Unauthorized

_config: Final[Any] = config_reader.load()

#: Reading from the socket pauses at twice this much unread data, which bounds the memory of a
#: hundred connections.
READ_BUFFER_BYTES: Final = 2**18
#: Seconds until the kernel notices a peer that vanished without closing.
DEAD_PEER_S: Final = 30
#: How long a replaced pool stays open: no request or watch lasts longer.
RETIRED_S: Final = 180.0
#: Shortest time between two reads of credentials: an exec plugin may be slow or interactive.
RENEW_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration comes from. An empty `kubeconfig` means: find it.

    `text` is the content of a kubeconfig, for example from a Secret. Its author must not be able to
    make this program read a file or start a program, so it must contain the credentials themselves.
    """

    kubeconfig: str = ""
    context: str = ""
    user_agent: str = "ballast"
    #: Sent with every request, for example to impersonate an identity.
    headers: tuple[tuple[str, str], ...] = ()
    text: str = field(default="", repr=False)


#: What the library raises for a malformed configuration: it uses what YAML returns without checking
#: its types.
_UNUSABLE = (
    _config.ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    RecursionError,
)


class Connection:
    """A connection pool to one API server, and the authorization header."""

    def __init__(self, source: Source, configuration: Any) -> None:
        self._source = source
        self._configuration = configuration
        self._session = _open_session(configuration, source)
        self._ca = _read_ca(configuration)
        #: Replaced pools, and when each was replaced, by the loop's clock.
        self._retired: list[tuple[aiohttp.ClientSession, float]] = []
        self._renewing = asyncio.Lock()
        self._renewed_at = 0.0
        #: Counts reads of credentials, so that a caller can say which ones failed.
        self.generation = 0

    @classmethod
    async def open(cls, source: Source) -> "Connection":
        """Read the configuration without any request. Raises Misconfigured."""
        return cls(source, await _read_configuration(source))

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool for the newest credentials."""
        return self._session

    @property
    def host(self) -> str:
        """The server's URL without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def has_certificate(self) -> bool:
        """Whether we authenticate with a client certificate."""
        return bool(self._configuration.cert_file)

    def options(self) -> dict[str, Any]:
        """Arguments for aiohttp that every request needs besides its own."""
        given = {
            "server_hostname": self._configuration.tls_server_name,
            "proxy": self._configuration.proxy,
        }
        return {key: value for key, value in given.items() if value}

    async def headers(self) -> dict[str, str]:
        """The authorization header; a token file is read again each minute."""
        try:
            settings = await self._configuration.auth_settings()
        except (_config.ConfigException, OSError) as error:
            raise Unauthorized(f"{self.host}: cannot read the token: {error}") from error
        return {setting["key"]: setting["value"].strip() for setting in settings.values()}

    async def renew(self, generation: int) -> None:
        """Read the credentials again, unless that happened since `generation` was current."""
        async with self._renewing:
            if generation != self.generation:
                return
            now = asyncio.get_running_loop().time()
            if self.generation and now - self._renewed_at < RENEW_EVERY_S:
                return
            self._renewed_at = now
            self.generation += 1
            try:
                fresh = await _read_configuration(self._source)
            except Misconfigured as error:
                raise Unauthorized(f"credentials are refused, and {error.message}") from error
            self._replace_session(fresh)
            await self._close_retired(now - RETIRED_S)

    def renew_trust(self) -> None:
        """Read the CA file again, and trust a new CA in it: when the cluster's CA is rotated,
        kubelet updates the file in each pod."""
        if _read_ca(self._configuration) != self._ca:
            # A half-written file is read again after the next failure.
            with suppress(Misconfigured):
                self._replace_session(self._configuration)

    def _replace_session(self, configuration: Any) -> None:
        ca = _read_ca(configuration)
        session = _open_session(configuration, self._source)
        # Requests in flight finish on their pool.
        self._retired.append((self._session, asyncio.get_running_loop().time()))
        self._configuration, self._session, self._ca = configuration, session, ca

    async def close(self) -> None:
        """Close every connection; requests in flight fail."""
        await self._session.close()
        await self._close_retired(float("inf"))

    async def _close_retired(self, before: float) -> None:
        """Close the pools that were replaced before this time; without this, a server that refuses
        us for days would leave thousands."""
        old = [session for session, at in self._retired if at < before]
        self._retired = [(session, at) for session, at in self._retired if at >= before]
        for session in old:
            await session.close()


def namespace_of(kubeconfig: str = "", context: str = "") -> str:
    """The namespace of a kubeconfig's context, else "default", as for kubectl."""
    path = kubeconfig or os.environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")
    if not _is_there(path):
        return "default"
    try:
        contexts, current = _config.list_kube_config_contexts(path)
        chosen = next((c for c in contexts if c["name"] == context), None) if context else current
        return str((chosen or {})["context"].get("namespace") or "default")
    except _UNUSABLE:
        return "default"


async def _read_configuration(source: Source) -> Any:
    configuration = _config.Configuration()
    path = source.kubeconfig or os.environ.get("KUBECONFIG", "")
    default = Path.home() / ".kube" / "config"
    try:
        if source.text:
            path = "the kubeconfig"
            document = _embedded(source.text)
            await _config.load_kube_config_from_dict(
                document, source.context or None, client_configuration=configuration
            )
        elif path and not _is_there(path):
            raise Misconfigured(f"{path}: there is no such kubeconfig")
        elif not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
            _config.load_incluster_config(client_configuration=configuration)
        elif path or default.exists():
            await _config.load_kube_config(
                config_file=path or str(default),
                context=source.context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        else:
            raise Misconfigured(
                "no API server: give a kubeconfig, set KUBECONFIG, or run as a pod in the cluster"
            )
        _check_address(configuration.host or "")
    except _UNUSABLE as error:
        where = path or "the pod's service account"
        # Python's message would only name a missing part or a wrong type.
        is_shape = isinstance(error, TypeError | AttributeError)
        why = "it is empty, or not a kubeconfig" if is_shape else " ".join(str(error).split())
        raise Misconfigured(f"{where}: cannot be used to reach an API server: {why}") from error
    return configuration


#: Keys not allowed in a kubeconfig in memory: they name a file or a program, or disable checks.
_NOT_EMBEDDED: Final = {
    "clusters": ("cluster", ("certificate-authority", "insecure-skip-tls-verify", "proxy-url")),
    "users": (
        "user",
        ("client-certificate", "client-key", "tokenFile", "exec", "auth-provider", "password"),
    ),
}


def _embedded(text: str) -> Any:
    """A kubeconfig with embedded credentials, decoded. Raises ValueError for any other."""
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        raise ValueError("it is not a kubeconfig")
    for listed, (inner, refused) in _NOT_EMBEDDED.items():
        for entry in document.get(listed) or ():
            for key in refused:
                if entry.get(inner, {}).get(key):
                    raise ValueError(f"{key} is not allowed here: give the data itself")
    for entry in document.get("clusters") or ():
        server = urlsplit(str(entry.get("cluster", {}).get("server", "")))
        if server.scheme == "http" and not _is_this_machine(server.hostname or ""):
            raise ValueError("http is not allowed here: its server proves nothing; give https")
    return document


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_there(paths: str) -> bool:
    """Whether any of the files exists; without one, the library prints to standard error."""
    return any(Path(each).expanduser().exists() for each in paths.split(os.pathsep) if each)


def _check_address(url: str) -> None:
    """Raise ValueError if no request could ever be sent to this server."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ValueError(f"server {url!r} is not an address such as https://10.0.0.1:6443")


def _open_session(configuration: Any, source: Source) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=0,  # writes are limited by the client; watches must never wait for a slot
        ssl=_tls_context(configuration),
        socket_factory=_open_socket,
        keepalive_timeout=60,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        # Read once: with `trust_env` aiohttp reads the environment and ~/.netrc at every request.
        proxy=_proxy_for(configuration.host or ""),
        read_bufsize=READ_BUFFER_BYTES,
        # Compressing lists costs both sides more than the network between them.
        headers=[
            ("User-Agent", source.user_agent),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            *source.headers,
        ],
    )
    # aiohttp would resend a PUT or DELETE when a kept connection turns out closed, and the second
    # write would bypass the leader's fence.
    session._retry_connection = False
    return session


def _proxy_for(url: str) -> str | None:
    """The proxy for this URL from the environment, if any."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _read_ca(configuration: Any) -> bytes:
    """The content of the CA file; empty if none is set or it cannot be read."""
    try:
        return Path(configuration.ssl_ca_cert or "").read_bytes()
    except OSError:
        return b""


def _tls_context(configuration: Any) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except OSError as error:
        raise Misconfigured(f"{configuration.host}: unusable certificate: {error}") from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (
        ("TCP_KEEPIDLE", DEAD_PEER_S // 2),
        ("TCP_KEEPINTVL", DEAD_PEER_S // 6),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", DEAD_PEER_S * 1000),
    ):
        if hasattr(socket, option):  # all exist on Linux
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return opened
