"""The protocol between the arbiter and the native library; `layout.h` says the same in C.

    process                          arbiter
      HELLO [table it had before] ->
                                   <- WELCOME slot, table, grants
      WANT card                   ->   it has something to launch and may not
                                   <- grant: OPEN, or LEASED until a deadline
      YIELD card                  ->   nothing is queued or running any more
                                   <- grant: CLOSED
      DRAINED card                ->   what was launched before the gate closed has ended

Messages are 16 bytes on a SEQPACKET socket; grants are words in shared memory. A message that is
not just so ends the connection: every field comes from a tenant.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAGIC: Final = 0x53414C42
VERSION: Final = 2
#: Running containers keep their library when it is upgraded.
OLDEST: Final = 1
MAX_CARDS: Final = 16
MAX_SLOTS: Final = 256

ACCOUNT: Final = struct.Struct("<48sQQqQ")
SLOT: Final = struct.Struct("<II16QQQQQ24x")
TABLE_HEAD: Final = struct.Struct("<IIII48x")
GRANT: Final = struct.Struct("<IIQ48x")
GRANTS_HEAD: Final = struct.Struct("<IIIIQQ32x")
MESSAGE: Final = struct.Struct("<BBHIQ")

TABLE_SIZE: Final = TABLE_HEAD.size + MAX_CARDS * ACCOUNT.size + MAX_SLOTS * SLOT.size
GRANTS_SIZE: Final = GRANTS_HEAD.size + MAX_CARDS * GRANT.size


class Gate(IntEnum):
    """OPEN: no other container wants the card. LEASED: until the deadline. CLOSED: ask and wait."""

    CLOSED = 0
    OPEN = 1
    LEASED = 2


class Kind(IntEnum):
    """What a message says."""

    HELLO = 1
    WELCOME = 2
    WANT = 3
    YIELD = 4
    DRAINED = 5


@dataclass(slots=True, frozen=True)
class Message:
    """`value` is the version in HELLO, the slot in WELCOME, else the grant's generation."""

    kind: Kind
    card: int = 0
    value: int = 0
    pid: int = 0

    def encode(self) -> bytes:
        """As it goes over the socket."""
        return MESSAGE.pack(self.kind, self.card, 0, self.value, self.pid)


def decode(data: bytes, n_cards: int) -> Message | None:
    """The message of a process, or None where it is not one that a process may send."""
    if len(data) != MESSAGE.size:
        return None
    kind, card, reserved, value, pid = MESSAGE.unpack(data)
    if reserved or kind not in (Kind.HELLO, Kind.WANT, Kind.YIELD, Kind.DRAINED):
        return None
    if kind == Kind.HELLO:
        is_spoken = OLDEST <= value <= VERSION
        return Message(Kind.HELLO, card, value, pid) if is_spoken else None
    return Message(Kind(kind), card, value) if card < n_cards else None
