"""TLS with client certificates, for an extender that listens beyond its own host.

kube-scheduler is identified only by its certificate, not by a token or an address.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog

from extender.http.metrics import CERTIFICATES

#: The common name that kubeadm and most installers give kube-scheduler's client certificate.
DEFAULT_CLIENTS: Final = ("system:kube-scheduler",)
#: Certificates are rotated days before they expire, so half a minute is soon enough.
POLL_S: Final = 30.0

_log = structlog.get_logger(__name__)


class TlsError(ValueError):
    """The files cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the serving certificate and key, and the CA that signs clients."""

    certificate: str
    key: str
    client_ca: str

    def context(self) -> ssl.SSLContext:
        """A context that presents our certificate and requires a client's; raises TlsError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(
                f"cannot use {self.certificate}, {self.key} and {self.client_ca}: {error}"
            ) from error
        return context

    def stamp(self) -> tuple[object, ...]:
        """A value that changes with any file; follows links, because kubelet swaps a link."""
        found: list[object] = []
        for path in (self.certificate, self.key, self.client_ca):
            try:
                stat = Path(path).stat()
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        return tuple(found)


async def follow_files(
    files: TlsFiles, use: Callable[[ssl.SSLContext], None], poll_s: float = POLL_S
) -> NoReturn:
    """Call `use` with a new context whenever the files have changed and can be used."""
    stamp = files.stamp()
    while True:
        await asyncio.sleep(poll_s)
        now = files.stamp()
        if now == stamp:
            continue
        try:
            context = files.context()
        except TlsError as error:
            # The rotation may be half written: the stamp stays, so it is retried.
            CERTIFICATES.labels("failed").inc()
            _log.warning("kept the old certificate", error=str(error))
            continue
        stamp = now
        use(context)
        CERTIFICATES.labels("ok").inc()
        _log.info("took the new certificate", file=files.certificate)


def names_in(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The common names and subject alternative names of a verified peer (`getpeercert()`)."""
    for names in certificate.get("subject", ()):
        for key, value in names:
            if key == "commonName":
                yield value
    for _kind, value in certificate.get("subjectAltName", ()):
        yield value
