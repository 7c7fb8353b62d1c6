"""One container: its socket, its shared pages, and the processes that are connected.

The socket that a process connects to identifies its container, since every container sees its own
directory only. Everything a process sends is checked; a message that is not allowed ends that
connection and nothing else. This module receives the HELLO; after the WELCOME the fast path
receives.
"""

import asyncio
import contextlib
import os
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import structlog

from gpu_shim.protocol import wire
from gpu_shim.protocol.pages import Grants, Library, Table
from gpu_shim.protocol.wire import Kind, Message

MIB: Final = 1 << 20
#: Interval at which slots without a connection are checked: their processes may have died.
SWEEP_S: Final = 1.0
#: First delay before a table that changed during a recount is recounted; doubled each time.
SETTLE_S: Final = 0.01
#: Pause in accepting when no file descriptors are left.
REST_S: Final = 0.5
#: Processes waiting to be accepted; a container has as many slots.
BACKLOG: Final = wire.MAX_SLOTS
#: Processes accepted at once before other containers are served: about a millisecond.
AT_ONCE: Final = 16
_CREDENTIALS: Final = struct.Struct("3i")

_log = structlog.get_logger("gpu_shim.arbiter")


@dataclass(slots=True, frozen=True)
class ContainerCard:
    """A card of a container, and the container's memory cap on it."""

    uuid: str
    cap_mib: int


class FastPath(Protocol):
    """The part of the arbiter that a container uses."""

    def watch(self, slot: int, sock: socket.socket) -> int:
        """Let the fast path receive a welcomed process; returns its connection there."""

    def forget(self, connection: int) -> None:
        """Stop receiving this process in the fast path."""

    def belongs(self, sock: socket.socket, container: str) -> bool:
        """Whether a peer may be of the container."""


@dataclass(slots=True)
class ProcessConnection:
    """One process. `table_slot` and `number`, its connection in the fast path, are -1 until the
    process has been welcomed."""

    sock: socket.socket
    pid: int
    table_slot: int = -1
    number: int = -1
    has_said_hello: bool = False
    is_followed: bool = False


@dataclass(slots=True)
class Container:
    """One container. For `grace_s` a new arbiter waits for a table from before its start."""

    name: str
    path: Path
    cards: tuple[ContainerCard, ...]
    library: Library
    fast_path: FastPath
    grace_s: float = 0.0
    #: MiB charged to a process for each context.
    context_mib: int = 0
    grants: Grants = field(init=False)
    #: Its slot in the fast path.
    slot: int = -1
    table: Table | None = None
    connections: dict[int, ProcessConnection] = field(default_factory=dict)
    #: Keys of welcomed connections by their number in the fast path.
    keys: dict[int, int] = field(default_factory=dict)
    _listening: socket.socket | None = None
    _born_s: float = 0.0
    _sweep: asyncio.TimerHandle | None = None
    _settling: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.grants = Grants(self.library, len(self.cards))

    def open(self) -> None:
        """Listen on a new socket file; one from before has no listener any more."""
        self._born_s = asyncio.get_running_loop().time()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.setblocking(False)
        listening.bind(str(self.path))
        # Any user of the container may connect; only this container sees the directory.
        self.path.chmod(0o666)
        listening.listen(BACKLOG)
        self._listening = listening
        self._listen()

    def close(self) -> None:
        """Close all connections. The table is kept: the processes bring it back."""
        loop = asyncio.get_running_loop()
        if self._listening is not None:
            loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for timer in (self._sweep, self._settling):
            if timer is not None:
                timer.cancel()
        self._disconnect()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def hang_up(self) -> None:
        """Close all connections, so that processes reconnect; reserved memory stays reserved."""
        self._disconnect()
        self._sweep_later()

    def _disconnect(self) -> None:
        for connection in self.connections.values():
            self._silence(connection)
        self.connections.clear()
        self.keys.clear()

    def _silence(self, connection: ProcessConnection) -> None:
        self._leave(connection)
        if connection.number >= 0:
            self.fast_path.forget(connection.number)
        connection.sock.close()

    def is_stopped(self) -> bool:
        """Whether all its processes that are connected are stopped."""
        pids = [each.pid for each in self.connections.values()]
        return bool(pids) and all(_is_stopped(pid) for pid in pids)

    def set_cards(self, cards: tuple[ContainerCard, ...]) -> None:
        """Change caps live; the cards themselves stay the same."""
        self.cards = cards
        for at, card in enumerate(cards):
            if self.table is not None:
                self.table.set_cap(at, card.cap_mib * MIB)
                self.table.set_context(at, self.context_mib * MIB)

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
            # The pending connection keeps the socket readable; descriptors may become free.
            _log.warning("could not accept a process", container=self.name, why=error.strerror)
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
        if not self.fast_path.belongs(sock, self.name):
            _log.warning("turned away a process of another pod", container=self.name, pid=pid)
            sock.close()
            return
        key = id(sock)
        self.connections[key] = ProcessConnection(sock, pid)
        # Its HELLO has usually arrived.
        self._read(key)

    def _follow(self, key: int) -> None:
        """Read when a message arrives, until the process has been welcomed."""
        connection = self.connections[key]
        connection.is_followed = True
        asyncio.get_running_loop().add_reader(connection.sock, self._read, key)

    def _leave(self, connection: ProcessConnection) -> None:
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
            # An older process may still bring the table that all of them share.
            loop.call_later(left_s, self._welcome, key, message)
            self._follow(key)
        else:
            self._welcome(key, message)

    def _adopt(self, fd: int = -1) -> None:
        self.table = Table(self.library, [card.uuid for card in self.cards], fd)
        self.set_cards(self.cards)

    def _welcome(self, key: int, message: Message) -> None:
        connection = self.connections.get(key)
        if connection is None or connection.table_slot >= 0:
            return
        if self.table is None:
            self._adopt()
        assert self.table is not None
        used = {each.table_slot for each in self.connections.values()}
        # A process that replaced itself comes back before its former end is known.
        wish = message.slot if message.slot not in used else -1
        connection.table_slot = self.table.take_slot(connection.pid, wish, message.value)
        answer = Message(Kind.WELCOME, value=max(connection.table_slot, 0)).encode()
        fds = [self.table.fd, self.grants.fd]
        try:
            if connection.table_slot < 0:
                raise ConnectionRefusedError
            socket.send_fds(connection.sock, [answer], fds)
        except OSError:
            self._drop(key)
            return
        self._leave(connection)
        connection.number = self.fast_path.watch(self.slot, connection.sock)
        self.keys[connection.number] = key

    def left(self, number: int) -> None:
        """The process with this connection in the fast path has ended."""
        if number in self.keys:
            self._drop(self.keys.pop(number))

    def _drop(self, key: int) -> None:
        connection = self.connections.pop(key)
        self._silence(connection)
        slot = connection.table_slot
        if self.table is not None and slot >= 0 and not self.table.forget(slot):
            self._settle_later()

    def _sweep_later(self) -> None:
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(SWEEP_S, self._sweep_slots)

    def _sweep_slots(self) -> None:
        """Free the slots of processes that died while no arbiter was connected to them."""
        self._sweep = None
        if self.table is None:
            return
        connected = {each.table_slot for each in self.connections.values()}
        lost = [(slot, pid) for slot, pid in self.table.owners() if slot not in connected]
        for slot, pid in lost:
            if not _is_alive(pid) and not self.table.forget(slot):
                self._settle_later()
        if any(_is_alive(pid) for _, pid in lost):
            self._sweep_later()

    def _settle_later(self, wait_s: float = SETTLE_S) -> None:
        """Recount until nothing changes meanwhile: a process died during a change."""
        if self._settling is None:
            loop = asyncio.get_running_loop()
            self._settling = loop.call_later(wait_s, self._settle_table, wait_s)

    def _settle_table(self, waited_s: float) -> None:
        self._settling = None
        if self.table is not None and not self.table.reconcile():
            # The tenant writes the table: constant changes must not keep the arbiter busy.
            self._settle_later(min(2 * waited_s, SWEEP_S))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        # The number comes from the tenant's table: it may not be a process at all.
        return False
    except PermissionError:
        pass
    return True


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal (T) or a debugger (t), see proc(5)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b") ")[2][:1] in (b"T", b"t")


def _close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)
