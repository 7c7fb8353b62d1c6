"""The protocol between the arbiter and the native library; `layout.h` is the same in C.

    process                          arbiter
      HELLO [table it had before] ->
                                   <- WELCOME slot, table, grants
      WANT card                   ->   it has something to launch and may not
                                   <- grant: OPEN, or LEASED until a deadline
      YIELD card                  ->   nothing is queued or running any more
                                   <- grant: CLOSED
      DRAINED card                ->   what was launched before the gate closed has ended

Messages are 16 bytes on a SEQPACKET socket; grants are words in shared memory. An invalid message
ends the connection: every field comes from a tenant.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAGIC: Final = 0x53414C42
VERSION: Final = 3
#: Running containers keep their library when the agent is upgraded.
OLDEST: Final = 1
MAX_CARDS: Final = 16
MAX_SLOTS: Final = 2048
#: The slots that a library older than `MANY_SLOTS_SINCE`, and a table of that time, have.
FEW_SLOTS: Final = 256
MANY_SLOTS_SINCE: Final = 3

ACCOUNT: Final = struct.Struct("<48sQQqQ")
SLOT: Final = struct.Struct("<II16QQQQQ24x")
TABLE_HEAD: Final = struct.Struct("<IIII48x")
GRANT: Final = struct.Struct("<IIQ48x")
GRANTS_HEAD: Final = struct.Struct("<IIIIQQ32x")
MESSAGE: Final = struct.Struct("<BBHIQ")

SLOTS_AT: Final = TABLE_HEAD.size + MAX_CARDS * ACCOUNT.size
TABLE_SIZE: Final = SLOTS_AT + MAX_SLOTS * SLOT.size
SMALL_TABLE_SIZE: Final = SLOTS_AT + FEW_SLOTS * SLOT.size
GRANTS_SIZE: Final = GRANTS_HEAD.size + MAX_CARDS * GRANT.size


class Gate(IntEnum):
    """OPEN: no other container wants the card. LEASED: until the deadline. CLOSED: ask and wait."""

    CLOSED = 0
    OPEN = 1
    LEASED = 2


class Kind(IntEnum):
    """The kind of a message."""

    HELLO = 1
    WELCOME = 2
    WANT = 3
    YIELD = 4
    DRAINED = 5


@dataclass(slots=True, frozen=True)
class Message:
    """`value` is the version in HELLO, the slot in WELCOME, else the grant's generation.

    `slot` is the process's slot before its HELLO; up to version 2 it is in `card`.
    """

    kind: Kind
    card: int = 0
    value: int = 0
    pid: int = 0
    slot: int = 0

    def encode(self) -> bytes:
        """The encoded message."""
        return MESSAGE.pack(self.kind, self.card, self.slot, self.value, self.pid)


def decode(data: bytes, n_cards: int) -> Message | None:
    """The message of a process, or None if a process may not send it."""
    if len(data) != MESSAGE.size:
        return None
    kind, card, slot, value, pid = MESSAGE.unpack(data)
    has_slot = kind == Kind.HELLO and value >= MANY_SLOTS_SINCE
    if (slot and not has_slot) or kind not in (Kind.HELLO, Kind.WANT, Kind.YIELD, Kind.DRAINED):
        return None
    if kind == Kind.HELLO:
        is_spoken = OLDEST <= value <= VERSION
        wish = slot if has_slot else card
        return Message(Kind.HELLO, 0, value, pid, wish) if is_spoken else None
    return Message(Kind(kind), card, value) if card < n_cards else None
