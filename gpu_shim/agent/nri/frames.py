"""Bytes of the NRI socket as ttrpc messages, and back.

    trunk    connection u32, length u32, then so many bytes of that connection's stream
    stream   length u32, stream u32, kind u8, flags u8, then so many bytes of a message

All numbers are big-endian. Connection 1 carries the runtime's calls to us, 2 ours to it. A message
may lie in several trunk frames and a frame may hold several messages. The runtime reads a frame
into a buffer of 4096 bytes and gives up when it does not fit, so longer writes are cut.

Nothing here reads or writes a socket. What arrives is bounded before it is kept.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

PLUGIN: Final = 1
RUNTIME: Final = 2

_TRUNK: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">IIBB")
#: Limits of ttrpc and of the multiplexer on top of it.
MAX_MESSAGE: Final = 4 << 20
_MAX_FRAME: Final = MAX_MESSAGE + _HEAD.size
_CHUNK: Final = 4096


class FramingError(Exception):
    """The received data violates the protocol; the connection is out of sync and must end."""


class FrameKind(IntEnum):
    """The kind of a message."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


@dataclass(slots=True, frozen=True)
class Frame:
    """One message of a connection; `stream` pairs a response with its request."""

    connection: int
    stream: int
    kind: int
    payload: bytes


def encode(message: Frame) -> bytes:
    """The encoded message."""
    if len(message.payload) > MAX_MESSAGE:
        raise FramingError(f"a message of {len(message.payload)} bytes, at most {MAX_MESSAGE}")
    head = _HEAD.pack(len(message.payload), message.stream, message.kind, 0)
    whole = head + message.payload
    chunks = (whole[at : at + _CHUNK] for at in range(0, len(whole), _CHUNK))
    return b"".join(_TRUNK.pack(message.connection, len(each)) + each for each in chunks)


@dataclass(slots=True)
class Decoder:
    """Decodes received bytes into messages, for each connection."""

    _trunk: bytearray = field(default_factory=bytearray)
    _streams: dict[int, bytearray] = field(default_factory=dict)

    def feed(self, data: bytes) -> Iterable[Frame]:
        """The messages that these bytes complete. Raises FramingError, and is unusable afterwards.

        Frames of connections that were never opened are skipped, as the runtime does.
        """
        self._trunk += data
        while len(self._trunk) >= _TRUNK.size:
            connection, n_bytes = _TRUNK.unpack_from(self._trunk)
            if n_bytes > _MAX_FRAME:
                raise FramingError(f"a frame of {n_bytes} bytes, at most {_MAX_FRAME}")
            end = _TRUNK.size + n_bytes
            if len(self._trunk) < end:
                return
            chunk = bytes(self._trunk[_TRUNK.size : end])
            del self._trunk[:end]
            if connection in (PLUGIN, RUNTIME):
                yield from self._messages(connection, chunk)

    def _messages(self, connection: int, chunk: bytes) -> Iterable[Frame]:
        stream = self._streams.setdefault(connection, bytearray())
        stream += chunk
        while len(stream) >= _HEAD.size:
            n_bytes, number, kind, _ = _HEAD.unpack_from(stream)
            if n_bytes > MAX_MESSAGE:
                raise FramingError(f"a message of {n_bytes} bytes, at most {MAX_MESSAGE}")
            end = _HEAD.size + n_bytes
            if len(stream) < end:
                return
            payload = bytes(stream[_HEAD.size : end])
            del stream[:end]
            yield Frame(connection, number, kind, payload)
