"""One container's door: its socket, its shared pages, and the processes that came through.

Which socket a process connected to says which container it is: every container sees its own
directory only. What a process writes is checked, and at worst ends its own connection.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import structlog

from gpu_shim.arbiter import wire
from gpu_shim.arbiter.pages import Grants, Library, Table
from gpu_shim.arbiter.wire import Gate, Kind, Message

MIB: Final = 1 << 20
#: How often slots without a connection are looked at: their processes may have died meanwhile.
SWEEP_S: Final = 1.0
#: Processes waiting to be accepted; a container has as many slots.
BACKLOG: Final = wire.MAX_SLOTS
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
        """A process has been welcomed."""

    def said(self, key: int, container: str, message: Message) -> None:
        """A process wants, yields or has drained a card."""

    def left(self, key: int) -> None:
        """A process is gone."""


@dataclass(slots=True)
class Connection:
    """One process; its slot is -1 until it has said HELLO."""

    sock: socket.socket
    pid: int
    slot: int = -1


@dataclass(slots=True)
class Container:
    """One container. `grace_s`: for how long a new arbiter waits for a table of before."""

    name: str
    path: Path
    cards: tuple[Card, ...]
    library: Library
    listener: Listener
    grace_s: float = 0.0
    grants: Grants = field(init=False)
    table: Table | None = None
    connections: dict[int, Connection] = field(default_factory=dict)
    _listening: socket.socket | None = None
    _born_s: float = 0.0
    _sweep: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.grants = Grants(self.library, len(self.cards))

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
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)
        self._listening = listening

    def close(self) -> None:
        """Hang up on everybody. The table is left as it is: its processes bring it back."""
        loop = asyncio.get_running_loop()
        if self._listening is not None:
            loop.remove_reader(self._listening)
            self._listening.close()
        if self._sweep is not None:
            self._sweep.cancel()
        self._disconnect()
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def hang_up(self, gate: Gate) -> None:
        """End all connections, to be made anew, and set all gates; what is reserved stays so."""
        self._disconnect()
        for at in range(len(self.cards)):
            self.grants.set_gate(at, gate, 0)
        self._sweep_later()

    def _disconnect(self) -> None:
        for connection in self.connections.values():
            asyncio.get_running_loop().remove_reader(connection.sock)
            connection.sock.close()
        self.connections.clear()

    def set_cards(self, cards: tuple[Card, ...]) -> None:
        """Change caps live; cards themselves stay what they were."""
        self.cards = cards
        for at, card in enumerate(cards):
            if self.table is not None:
                self.table.set_cap(at, card.cap_mib * MIB)

    # -- connections ---------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sock, _ = listening.accept()
            sock.setblocking(False)
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid = _CREDENTIALS.unpack(raw)[0]
            if pid <= 0 or len(self.connections) >= wire.MAX_SLOTS:
                sock.close()
                return
            key = id(sock)
            self.connections[key] = Connection(sock, pid)
            asyncio.get_running_loop().add_reader(sock, self._read, key)

    def _read(self, key: int) -> None:
        connection = self.connections[key]
        files = list[int]()
        try:
            data, files, _, _ = socket.recv_fds(connection.sock, 64, 2)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        message = wire.decode(data, len(self.cards))
        if message is None or (message.kind == Kind.HELLO) != (connection.slot < 0):
            _close_all(files)
            self._drop(key)
        elif message.kind == Kind.HELLO:
            self._hello(key, message, files)
        else:
            _close_all(files)
            self.listener.said(key, self.name, message)

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
        self.listener.joined(key, self.name)

    def _drop(self, key: int) -> None:
        connection = self.connections.pop(key)
        asyncio.get_running_loop().remove_reader(connection.sock)
        connection.sock.close()
        if connection.slot >= 0 and self.table is not None:
            if not self.table.forget(connection.slot):
                self._settle_later()
            self.listener.left(key)

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

    def _settle_later(self) -> None:
        """Count anew until nothing moves meanwhile: a process died within a change."""
        retry: Callable[[], None] = self._settle_table
        asyncio.get_running_loop().call_later(0.01, retry)

    def _settle_table(self) -> None:
        if self.table is not None and not self.table.reconcile():
            self._settle_later()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)
