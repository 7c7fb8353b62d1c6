"""T14: requests that try to block the server or exhaust its memory, as bytes on connections.

The sender has a valid certificate, which is the worst case: others fail in the handshake.
Connections stay open until the end.
"""

import contextlib
import json
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable
from typing import Final

MIB: Final = 2**20
TIMEOUT_S: Final = 10.0
#: A server that reads nothing of a body for this long has stopped reading.
HELD_UP_S: Final = 0.3
#: After this many bytes the server must have answered or closed the connection.
ANSWER_BYTES: Final = 4096


class Line:
    """Opens connections to a server and keeps them open."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.port = port
        self._tls = tls
        self._open: list[socket.socket] = []

    def raw(self) -> socket.socket:
        """A connection without TLS."""
        made = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        self._open.append(made)
        return made

    def dial(self) -> socket.socket:
        """A connection with TLS."""
        plain = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        try:
            made = self._tls.wrap_socket(plain)
        except OSError:
            plain.close()
            raise
        self._open.append(made)
        return made

    def ask(self, *parts: bytes) -> bytes:
        """The beginning of the answer to these bytes; empty if the server closed the connection."""
        made = self.dial()
        with contextlib.suppress(OSError):
            for part in parts:
                made.sendall(part)
        try:
            return made.recv(ANSWER_BYTES)
        except OSError:
            return b""

    def hold(self, n: int, *parts: bytes) -> bytes:
        """Sends these bytes on `n` connections, as far as the server reads, and reads no answer."""
        for _ in range(n):
            with contextlib.suppress(OSError):
                made = self.dial()
                made.settimeout(HELD_UP_S)
                for part in parts:
                    made.sendall(part)
        return b""

    def close(self) -> None:
        """Closes all connections."""
        for made in self._open:
            made.close()
        self._open.clear()


def head(*lines: str, path: str = "/filter") -> bytes:
    """A request's headers."""
    fixed = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *lines)
    return "\r\n".join((*fixed, "", "")).encode()


def whole(body: bytes, *lines: str, path: str = "/filter") -> bytes:
    """A request with its body."""
    return head(f"Content-Length: {len(body)}", *lines, path=path) + body


def chunks(parts: Iterable[bytes]) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def _bomb(wbits: int) -> bytes:
    """256 MiB of zeros, compressed; takes a second."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    packed = b"".join(packer.compress(bytes(MIB)) for _ in range(256))
    return packed + packer.flush()


def _sends_bomb(wbits: int, encoding: str) -> Callable[[Line], bytes]:
    return lambda line: line.ask(whole(_bomb(wbits), f"Content-Encoding: {encoding}"))


POD: Final = b'{"Pod":{"metadata":{"name":"a","uid":"u","namespace":"n"}},"NodeNames":'


def filter_body(n_names: int) -> bytes:
    """The body of a valid filter request with `n_names` nodes."""
    return POD + json.dumps([f"gpu-node-{n:06d}" for n in range(n_names)]).encode() + b"}"


def _nothing_said(line: Line) -> bytes:
    for _ in range(300):
        line.raw()
    return b""


def _half_handshakes(line: Line) -> bytes:
    for _ in range(100):
        line.raw().sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    return b""


def _not_tls(line: Line) -> bytes:
    made = line.raw()
    made.sendall(head())
    return made.recv(ANSWER_BYTES)


def _resets(line: Line) -> bytes:
    for _ in range(200):
        made = socket.create_connection(("127.0.0.1", line.port), TIMEOUT_S)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        made.close()
    return b""


def _half_closed(line: Line) -> bytes:
    made = line.dial()
    made.sendall(head("Content-Length: 10"))
    with contextlib.suppress(OSError):
        made.shutdown(socket.SHUT_WR)
    return b""


def _churn(line: Line) -> bytes:
    for _ in range(200):
        made = line.dial()
        made.close()
    return b""


def _sends(*parts: bytes) -> Callable[[Line], bytes]:
    return lambda line: line.ask(*parts)


def _holds(n: int, *parts: bytes) -> Callable[[Line], bytes]:
    return lambda line: line.hold(n, *parts)


_LONG: Final = 8 * MIB
#: Title -> the request, and possible beginnings of the answer; empty: the connection is closed.
ABUSES: Final[dict[str, tuple[Callable[[Line], bytes], tuple[bytes, ...]]]] = {
    "300 connections that say nothing": (_nothing_said, ()),
    "100 half handshakes": (_half_handshakes, ()),
    "plain HTTP on the TLS port": (_not_tls, ()),
    "200 resets": (_resets, ()),
    "200 connections one after another": (_churn, ()),
    "120 connections idle after TLS": (_holds(120), ()),
    "50 slow headers": (_holds(50, b"POST /filter HTTP/1.1\r\nHost: x\r\nX-A: "), ()),
    "50 slow request lines": (_holds(50, b"PO"), ()),
    "a header of 1 MiB": (_sends(head("X-A: " + "a" * MIB)), (b"400", b"431")),
    "10,000 headers": (_sends(head(*(f"X-{n}: a" for n in range(10_000)))), (b"400", b"431")),
    "a path of 1 MiB": (_sends(head(path="/" + "a" * MIB)), (b"400", b"414")),
    "a NUL in the request line": (_sends(head(path="/fil\0ter")), (b"400", b"404")),
    "50 slow bodies": (_holds(50, head(f"Content-Length: {_LONG}"), b"{"), ()),
    "50 slow chunked bodies": (_holds(50, head("Transfer-Encoding: chunked"), b"1\r\n{\r\n"), ()),
    "8 MiB and a byte": (_sends(head(f"Content-Length: {_LONG + 1}"), bytes(_LONG + 1)), (b"413",)),
    "8 bodies of 8 MiB that don't end": (
        _holds(8, head(f"Content-Length: {_LONG}"), b" " * (_LONG - 1)), ()),
    "a length of 10^18": (_holds(1, head(f"Content-Length: {10**18}"), b"{}"), ()),
    "a negative length": (_sends(head("Content-Length: -1")), (b"400",)),
    "two lengths": (_sends(head("Content-Length: 2", "Content-Length: 3"), b"{}"), (b"400",)),
    "a length and chunks": (
        _sends(head("Content-Length: 2", "Transfer-Encoding: chunked"), b"0\r\n\r\n"), (b"400",)),
    "100,000 chunks": (
        _sends(head("Transfer-Encoding: chunked"), chunks([b" "] * 100_000)), (b"400",)),
    "a chunk of 2^64": (
        _holds(1, head("Transfer-Encoding: chunked"), b"FFFFFFFFFFFFFFFFF\r\n"), ()),
    "a chunk extension of 1 MiB": (
        _holds(1, head("Transfer-Encoding: chunked"), b"1;" + b"a" * MIB + b"\r\n"), ()),
    "a gzip bomb": (_sends_bomb(31, "gzip"), (b"415",)),
    "a deflate bomb": (_sends_bomb(15, "deflate"), (b"415",)),
    "a raw bomb": (_sends_bomb(-15, "br"), (b"415",)),
    "arrays a million deep": (_sends(whole(b"[" * 10**6 + b"]" * 10**6)), (b"400",)),
    "objects deep inside a pod": (
        _sends(whole(b'{"Pod":{"spec":' + b'{"a":' * 10**6 + b"1" + b"}" * 10**6)), (b"400",)),
    "a number of a million digits": (_sends(whole(POD + b"1" * 10**6 + b"}")), (b"400",)),
    "a float beyond all": (_sends(whole(POD + b"[1e999999999]}")), (b"400",)),
    "a name of 7 MiB": (_sends(whole(POD + b'["' + b"a" * 7 * MIB + b'"]}')), (b"400",)),
    "200,000 names": (_sends(whole(filter_body(200_000))), (b"200",)),
    "300,000 keys": (
        _sends(whole(b"{" + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}")), (b"400",)),
    "one key 300,000 times": (
        _sends(whole(POD + b"[]," + b",".join([b'"NodeNames":[]'] * 300_000) + b"}")), (b"200",)),
    "bytes that are no text": (_sends(whole(POD + b'["\xff\xfe"]}')), (b"400",)),
    "1,000 requests in one go": (_holds(1, whole(b"{}") * 1000), ()),
    "40 long answers that nobody reads": (_holds(40, whole(filter_body(5_000))), ()),
    "an upgrade": (_sends(head("Connection: Upgrade", "Upgrade: websocket")), (b"400", b"415")),
    "HTTP/2": (_sends(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ()),
    "HTTP/0.9": (_sends(b"GET /filter\r\n\r\n"), ()),
    "a form": (_sends(whole(b"--b\r\n", "Content-Type: multipart/form-data; boundary=b")), ()),
    "a body that is promised only": (
        _holds(20, head("Content-Length: 10", "Expect: 100-continue")), ()),
    "a half closed connection": (_half_closed, ()),
}  # fmt: skip
