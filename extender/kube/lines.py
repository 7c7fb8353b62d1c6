"""Splits a stream into lines of any length; a line that is too long is cut, not refused."""

from collections.abc import Iterator

from msgspec import Struct


class CutLine(Struct, frozen=True):
    """The beginning of a line that was too long to keep."""

    head: bytes


class LineSplitter:
    """Takes chunks and yields whole lines without their ends; holds at most one unfinished line."""

    def __init__(self, max_bytes: int, head_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = head_bytes
        self._kept = bytearray()
        self._is_cut = False

    @property
    def is_inside_line(self) -> bool:
        """Whether the stream so far ends in the middle of a line."""
        return bool(self._kept)

    def feed(self, chunk: bytes) -> Iterator[bytes | bytearray | CutLine]:
        """The lines that end in `chunk`; it must be used up before the next call."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if not self._kept and len(end) <= self._max_bytes:
                yield end
            else:
                self._add(end)
                yield self._take()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if self._is_cut:
            return
        self._kept += part
        if len(self._kept) > self._max_bytes:
            self._is_cut = True
            del self._kept[self._head_bytes :]

    def _take(self) -> bytearray | CutLine:
        kept, is_cut = self._kept, self._is_cut
        # A new buffer, because the line is decoded in place and may be referenced for a while.
        self._kept, self._is_cut = bytearray(), False
        return CutLine(bytes(kept)) if is_cut else kept
