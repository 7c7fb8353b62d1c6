"""One container's door: its socket, its shared pages, and the processes that came through.

Which socket a process connected to says which container it is: every container sees its own
directory only. What a process writes is checked, and at worst ends its own connection. It is heard
here until it has been welcomed; from then on the relay hears it.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import structlog

from gpu_shim.arbiter import wire
from gpu_shim.arbiter.pages import Grants, Library, Table
from gpu_shim.arbiter.relay import Relay
from gpu_shim.arbiter.wire import Gate, Kind, Message

MIB: Final = 1 << 20
#: How often slots without a connection are looked at: their processes may have died meanwhile.
SWEEP_S: Final = 1.0
#: How soon a table is counted anew that moved while it was counted; then twice as long each time.
SETTLE_S: Final = 0.01
#: For how long nobody is let in when there are no descriptors left.
REST_S: Final = 0.5
#: Processes waiting to be accepted; a container has as many slots.
BACKLOG: Final = wire.MAX_SLOTS
#: Processes that are let in before others than this container have a turn: about a millisecond.
AT_ONCE: Final = 16
_CREDENTIALS: Final = struct.Struct("3i")

_log = structlog.get_logger("gpu_shim.arbiter")


@dataclass(slots=True, frozen=True)
class Card:
    """A card of a container and what the container may have of its memory."""

    uuid: str
    cap_mib: int


class Listener(Protocol):
    """What a container tells: its processes as they come, speak and go."""

    def joined(self, key: int, container: str) -> None:
        """A process has been welcomed; `key` is its line."""

    def left(self, key: int) -> None:
        """A process that had joined is gone."""

    def belongs(self, sock: socket.socket, container: str) -> bool:
        """Whether who connected may be of the container."""


@dataclass(slots=True, frozen=True)
class Places:
    """The relay, and what the container's cards are there."""

    relay: Relay
    cards: Sequence[int]


@dataclass(slots=True)
class Connection:
    """One process; it has a slot and the relay's line once it has been welcomed, -1 before."""

    sock: socket.socket
    pid: int
    slot: int = -1
    line: int = -1
    has_said_hello: bool = False
    is_followed: bool = False


@dataclass(slots=True)
class Container:
    """One container. `grace_s`: for how long a new arbiter waits for a table of before."""

    name: str
    path: Path
    cards: tuple[Card, ...]
    library: Library
    listener: Listener
    places: Places
    grace_s: float = 0.0
    grants: Grants = field(init=False)
    #: Its place in the relay.
    door: int = field(init=False)
    table: Table | None = None
    connections: dict[int, Connection] = field(default_factory=dict)
    #: Keys of connections by the relay's lines.
    lines: dict[int, int] = field(default_factory=dict)
    _listening: socket.socket | None = None
    _born_s: float = 0.0
    _sweep: asyncio.TimerHandle | None = None
    _settling: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.grants = Grants(self.library, len(self.cards))
        self.door = self.places.relay.open_door(self.grants.address, self.places.cards)

    def open(self) -> None:
        """Listen. The socket's file is made anew: nobody listens on one from before."""
        self._born_s = asyncio.get_running_loop().time()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.setblocking(False)
        listening.bind(str(self.path))
        # Users inside the container are whoever they are; the directory is the container's alone.
        self.path.chmod(0o666)
        listening.listen(BACKLOG)
        self._listening = listening
        self._listen()

    def close(self) -> None:
        """Hang up on everybody. The table is left as it is: its processes bring it back."""
        loop = asyncio.get_running_loop()
        if self._listening is not None:
            loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for timer in (self._sweep, self._settling):
            if timer is not None:
                timer.cancel()
        self._disconnect()
        self.places.relay.close_door(self.door)
        with contextlib.suppress(OSError):
            self.path.unlink()

    def hang_up(self, gate: Gate) -> None:
        """End all connections, to be made anew, and set all gates; what is reserved stays so."""
        self._disconnect()
        for at in range(len(self.cards)):
            self.grants.set_gate(at, gate, 0)
        self._sweep_later()

    def _disconnect(self) -> None:
        for connection in self.connections.values():
            self._silence(connection)
        self.connections.clear()
        self.lines.clear()

    def _silence(self, connection: Connection) -> None:
        self._leave(connection)
        if connection.line >= 0:
            self.places.relay.forget(connection.line)
        connection.sock.close()

    def gate_of(self, uuid: str) -> tuple[int, int]:
        """The gate of one of its cards, as the relay knows it."""
        return self.door, next(at for at, card in enumerate(self.cards) if card.uuid == uuid)

    def set_cards(self, cards: tuple[Card, ...]) -> None:
        """Change caps live; cards themselves stay what they were."""
        self.cards = cards
        for at, card in enumerate(cards):
            if self.table is not None:
                self.table.set_cap(at, card.cap_mib * MIB)

    # -- connections ---------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._listening is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            for _ in range(AT_ONCE):
                sock, _ = listening.accept()
                self._enter(sock)
        except (BlockingIOError, ConnectionError):
            pass
        except OSError as error:
            # Who knocks would have us try for ever; others leave meanwhile.
            _log.warning("could not let a process in", container=self.name, why=error.strerror)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(REST_S, self._listen)

    def _enter(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid = _CREDENTIALS.unpack(raw)[0]
        if pid <= 0 or len(self.connections) >= wire.MAX_SLOTS:
            sock.close()
            return
        if not self.listener.belongs(sock, self.name):
            _log.warning("turned away a process of another pod", container=self.name, pid=pid)
            sock.close()
            return
        key = id(sock)
        self.connections[key] = Connection(sock, pid)
        # Its HELLO is mostly there already.
        self._read(key)

    def _follow(self, key: int) -> None:
        """Read when there is something, until it has been welcomed."""
        connection = self.connections[key]
        connection.is_followed = True
        asyncio.get_running_loop().add_reader(connection.sock, self._read, key)

    def _leave(self, connection: Connection) -> None:
        if connection.is_followed:
            connection.is_followed = False
            asyncio.get_running_loop().remove_reader(connection.sock)

    def _read(self, key: int) -> None:
        connection = self.connections[key]
        files = list[int]()
        try:
            data, files, _, _ = socket.recv_fds(connection.sock, 64, 2)
        except BlockingIOError:
            self._follow(key)
            return
        except OSError:
            data = b""
        message = wire.decode(data, len(self.cards))
        if message is None or message.kind != Kind.HELLO or connection.has_said_hello:
            _close_all(files)
            self._drop(key)
            return
        connection.has_said_hello = True
        self._hello(key, message, files)

    def _hello(self, key: int, message: Message, files: list[int]) -> None:
        if self.table is None and files and Table.is_usable(files[0]):
            self._adopt(files.pop(0))
            self._sweep_later()
        _close_all(files)
        loop = asyncio.get_running_loop()
        left_s = self._born_s + self.grace_s - loop.time()
        if self.table is None and left_s > 0:
            # Somebody who was here before may still bring the table that all of them share.
            loop.call_later(left_s, self._welcome, key, message)
            self._follow(key)
        else:
            self._welcome(key, message)

    def _adopt(self, fd: int = -1) -> None:
        self.table = Table(self.library, [card.uuid for card in self.cards], fd)
        self.set_cards(self.cards)

    def _welcome(self, key: int, message: Message) -> None:
        connection = self.connections.get(key)
        if connection is None or connection.slot >= 0:
            return
        if self.table is None:
            self._adopt()
        assert self.table is not None
        connection.slot = self.table.take_slot(connection.pid, message.card)
        answer = Message(Kind.WELCOME, value=max(connection.slot, 0)).encode()
        fds = [self.table.fd, self.grants.fd]
        try:
            if connection.slot < 0:
                raise ConnectionRefusedError
            socket.send_fds(connection.sock, [answer], fds)
        except OSError:
            self._drop(key)
            return
        self._leave(connection)
        connection.line = self.places.relay.watch(self.door, connection.sock.fileno())
        self.lines[connection.line] = key
        self.listener.joined(connection.line, self.name)

    def left(self, line: int) -> None:
        """The process of this line is gone."""
        self._drop(self.lines[line])

    def _drop(self, key: int) -> None:
        connection = self.connections.pop(key)
        self._silence(connection)
        slot = connection.slot
        if self.table is not None and slot >= 0 and not self.table.forget(slot):
            self._settle_later()
        if connection.line >= 0:
            del self.lines[connection.line]
            self.listener.left(connection.line)

    def _sweep_later(self) -> None:
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(SWEEP_S, self._sweep_slots)

    def _sweep_slots(self) -> None:
        """Free the slots of processes that died with nobody here to see their connections end."""
        self._sweep = None
        if self.table is None:
            return
        connected = {each.slot for each in self.connections.values()}
        lost = [(slot, pid) for slot, pid in self.table.owners() if slot not in connected]
        for slot, pid in lost:
            if not _is_alive(pid) and not self.table.forget(slot):
                self._settle_later()
        if any(_is_alive(pid) for _, pid in lost):
            self._sweep_later()

    def _settle_later(self, wait_s: float = SETTLE_S) -> None:
        """Count anew until nothing moves meanwhile: a process died within a change."""
        if self._settling is None:
            loop = asyncio.get_running_loop()
            self._settling = loop.call_later(wait_s, self._settle_table, wait_s)

    def _settle_table(self, waited_s: float) -> None:
        self._settling = None
        if self.table is not None and not self.table.reconcile():
            # The table is the tenant's: one that never rests must not keep us busy.
            self._settle_later(min(2 * waited_s, SWEEP_S))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        # The number is what the tenant's table says: it may be no process's at all.
        return False
    except PermissionError:
        pass
    return True


def _close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)
