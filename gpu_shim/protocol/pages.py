"""Shared memory of one container: its memory table and its grants.

Both are memory files without a name, passed as descriptors. The table cannot be resized, so no
tenant can cause a fault in the arbiter. No mapping of the grants after ours can be writable.
"""

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_shim.protocol import wire
from gpu_shim.protocol.wire import Gate

_ADD_SEALS: Final = 1033
_GET_SEALS: Final = 1034
_NO_SEALS, _NO_SHRINK, _NO_GROW, _NO_FUTURE_WRITE = 1, 2, 4, 16
_FIXED: Final = _NO_SHRINK | _NO_GROW
_INT, _U32, _U64 = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
_FUNCTIONS: Final = (
    ("pages_set_gate", _INT, _U32, _U64),
    ("pages_set_cap", _INT, _U64),
    ("pages_set_overhead", _INT, ctypes.c_int64),
    ("pages_set_context", _INT, _U64),
    ("pages_used", _INT),
    ("pages_held", _INT),
    ("pages_forget", _INT, _INT),
    ("pages_reconcile", _INT),
    ("pages_reserve", _INT, _INT, _U64),
    ("pages_give_back", _INT, _INT, _U64),
)
#: Functions that return bytes.
_LONG: Final = ("pages_used", "pages_held")


class Library:
    """The atomic operations, in C."""

    def __init__(self, path: Path) -> None:
        self._c = ctypes.CDLL(str(path))
        for name, *kinds in _FUNCTIONS:
            function = getattr(self._c, name)
            function.argtypes = [ctypes.c_void_p, *kinds]
            function.restype = ctypes.c_uint64 if name in _LONG else ctypes.c_uint32

    def call(self, name: str, page: "ctypes.Array[ctypes.c_char]", *arguments: int) -> int:
        """Calls the function with the page and the arguments."""
        return int(getattr(self._c, name)(page, *arguments))


def _map(fd: int, size: int) -> "tuple[mmap.mmap, ctypes.Array[ctypes.c_char]]":
    mapped = mmap.mmap(fd, size)
    return mapped, (ctypes.c_char * size).from_buffer(mapped)


def _fresh(name: str, size: int) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd


@dataclass(slots=True, frozen=True)
class GateTally:
    """Gate waits of all processes that the container ever had, and calls unknown to the library.
    The figures never decrease when a process ends."""

    n_gate_waits: int
    longest_wait_ns: int
    n_unknown: int


class Table:
    """Memory of a container: caps, and reservations by process."""

    def __init__(self, library: Library, uuids: Iterable[str], fd: int = -1) -> None:
        self._library = library
        uuids = list(uuids)
        is_new = fd < 0
        self.fd = _fresh("ballast-table", wire.TABLE_SIZE) if is_new else fd
        #: An existing table's size tells its slots: a tenant may have changed its contents.
        size = os.fstat(self.fd).st_size
        self.n_slots = (size - wire.SLOTS_AT) // wire.SLOT.size
        if is_new:
            fcntl.fcntl(self.fd, _ADD_SEALS, _FIXED | _NO_SEALS)
        self._map, self._page = _map(self.fd, size)
        words = memoryview(self._map).cast("I")
        self._long_words = memoryview(self._map).cast("Q")
        #: The first word of every slot: the pid of its process.
        self._owners = words[wire.SLOTS_AT // 4 :: wire.SLOT.size // 4]
        #: Usually free: the slot after the last one taken.
        self._next_slot = 0
        head = (wire.MAGIC, wire.VERSION, len(uuids), self.n_slots)
        wire.TABLE_HEAD.pack_into(self._map, 0, *head)
        for card, uuid in enumerate(uuids):
            at = wire.TABLE_HEAD.size + card * wire.ACCOUNT.size
            self._map[at : at + 48] = uuid.encode().ljust(48, b"\0")

    @staticmethod
    def is_usable(fd: int) -> bool:
        """Whether a descriptor from a process is a table that an arbiter created.

        It has exactly the seals of one and is writable, or it could not be mapped.
        """
        try:
            seals = int(fcntl.fcntl(fd, _GET_SEALS))
            is_writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
            is_whole = os.fstat(fd).st_size in (wire.TABLE_SIZE, wire.SMALL_TABLE_SIZE)
            return is_writable and is_whole and seals == _FIXED | _NO_SEALS
        except OSError:
            return False

    def set_cap(self, card: int, n_bytes: int) -> None:
        """Set the cap of a card for all processes together."""
        self._library.call("pages_set_cap", self._page, card, n_bytes)

    def set_overhead(self, card: int, n_bytes: int) -> None:
        """Set the additional charge, from the driver's figures; may be negative."""
        self._library.call("pages_set_overhead", self._page, card, n_bytes)

    def set_context(self, card: int, n_bytes: int) -> None:
        """Set the charge for each context that a process creates on a card."""
        self._library.call("pages_set_context", self._page, card, n_bytes)

    def used_bytes(self, card: int) -> int:
        """Bytes that all processes together have reserved of a card."""
        return self._library.call("pages_used", self._page, card)

    def held_bytes(self, card: int) -> int:
        """Bytes that they hold by the driver's figures, with modules and calls without a hook."""
        return self._library.call("pages_held", self._page, card)

    def take_slot(self, pid: int, wish: int = -1, version: int = wire.VERSION) -> int:
        """A slot for a process whose library speaks `version`; -1: full.

        The process's previous slot (`wish`) if that is free or its own.
        """
        n_known = self.n_slots if version >= wire.MANY_SLOTS_SINCE else wire.FEW_SLOTS
        slot = self._next_slot
        if 0 <= wish < n_known and self._owners[wish] in (0, pid):
            slot = wish
        elif slot >= n_known or self._owners[slot]:
            owners = self._owners[:n_known].tolist()
            if 0 not in owners:
                return -1
            slot = owners.index(0)
        self._owners[slot] = pid
        self._next_slot = (slot + 1) % self.n_slots
        return slot

    def owners(self) -> list[tuple[int, int]]:
        """(slot, pid) of every slot that is taken."""
        return [(slot, pid) for slot, pid in enumerate(self._owners.tolist()) if pid]

    def forget(self, slot: int) -> bool:
        """Free the reservations of a process that has ended; False: reconcile later."""
        return bool(self._library.call("pages_forget", self._page, slot, self.n_slots))

    def reconcile(self) -> bool:
        """Set each account to the sum of the slots; False if something changed meanwhile."""
        return bool(self._library.call("pages_reconcile", self._page, self.n_slots))

    def tally(self) -> GateTally:
        """Figures of all slots, of past and present processes."""
        n_waits, _, longest_ns, n_unknown = (
            self._long_words[at :: wire.SLOT.size // 8].tolist() for at in self._figures_at()
        )
        return GateTally(sum(n_waits), max(longest_ns), sum(n_unknown))

    def _figures_at(self) -> range:
        """The positions of a slot's last four figures in the first slot, in 8-byte words."""
        first = wire.SLOTS_AT // 8 + 1 + wire.MAX_CARDS
        return range(first, first + 4)


class Grants:
    """The gates of a container. Only this object writes them."""

    def __init__(self, library: Library, n_cards: int) -> None:
        self._library = library
        self.fd = _fresh("ballast-grants", wire.GRANTS_SIZE)
        self._map, self._page = _map(self.fd, wire.GRANTS_SIZE)
        wire.GRANTS_HEAD.pack_into(self._map, 0, wire.MAGIC, wire.VERSION, n_cards, 0, 0, 0)
        # Our own mapping stays writable; no later one can be.
        seals = _FIXED | _NO_FUTURE_WRITE | _NO_SEALS
        fcntl.fcntl(self.fd, _ADD_SEALS, seals)
        for card in range(n_cards):
            self.set_gate(card, Gate.CLOSED, 0)

    @property
    def address(self) -> int:
        """The page's address in memory, valid while this object lives."""
        return ctypes.addressof(self._page)

    def set_gate(self, card: int, gate: Gate, deadline_ns: int) -> int:
        """Set a gate and wake the threads that wait for it; returns the new generation."""
        return self._library.call("pages_set_gate", self._page, card, int(gate), deadline_ns)

    def set_plan(self, plan_ns: int) -> None:
        """Set the length of a plan: no launch waits longer for its own program's work."""
        at = 24
        self._map[at : at + 8] = plan_ns.to_bytes(8, "little")

    def beat(self, now_ns: int) -> None:
        """Write the heartbeat."""
        at = 16
        self._map[at : at + 8] = now_ns.to_bytes(8, "little")
