"""Messages of a process cannot harm another process."""

import asyncio
import contextlib
import fcntl
import os
import random
import resource
import socket
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol import wire
from gpu_shim.protocol.wire import Kind, Message
from tests.integration.gpu_shim.containers import DONE_S, Scene, until
from tests.support.fakecuda import UUID

#: BALLAST_FUZZ=1000000 for a long run.
N_MESSAGES = int(os.environ.get("BALLAST_FUZZ", "3000"))
HELLO = Message(Kind.HELLO, value=wire.VERSION).encode()
FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def connect(scene: Scene, name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(DONE_S)
    sock.connect(str(scene.home(name) / "run" / "arbiter.sock"))
    return sock


class Noise:
    """A process that says anything, and comes again whenever it is hung up on."""

    def __init__(self, path: Path, n_messages: int) -> None:
        self.path = path
        self.random = random.Random(7)
        self.left = n_messages
        self.n_cut = 0

    def run(self) -> None:
        """Say them all; whatever may not be said must end the connection."""
        while self.left > 0:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.settimeout(DONE_S)
                sock.connect(str(self.path))
                self._speak(sock)

    def _speak(self, sock: socket.socket) -> None:
        is_known = False
        while self.left > 0:
            self.left -= 1
            is_hello = self.random.random() < (0.02 if is_known else 0.9)
            data = HELLO if is_hello else self._message()
            sock.send(data)
            message = wire.decode(data, n_cards=1)
            if message is None or (message.kind == Kind.HELLO) == is_known:
                # Unless it was let in before, it hears nothing but the end.
                assert sock.recv(64) == b""
                self.n_cut += 1
                return
            if not is_known:
                self._enter(sock)
                is_known = True

    def _enter(self, sock: socket.socket) -> None:
        _, files, _, _ = socket.recv_fds(sock, 64, 2)
        assert len(files) == 2
        for file in files:
            os.close(file)

    def _message(self) -> bytes:
        """Now and then of another size, often right but for one byte, mostly right."""
        dice = self.random.random()
        if dice < 0.1:
            return self.random.randbytes(self.random.choice([0, 1, 15, 16, 17, 64, 4096]))
        kind = self.random.choice([Kind.WANT, Kind.YIELD, Kind.DRAINED])
        data = bytearray(Message(kind, 0, self.random.choice([0, 1, 2, 3, 1 << 31])).encode())
        if dice < 0.2:
            data[self.random.randrange(4)] = self.random.randrange(256)
        return bytes(data)


@pytest.mark.timeout(180 + N_MESSAGES // 500)
async def test_noise_ends_its_own_connection_and_nothing_else(scene: Scene) -> None:
    scene.container("a")
    witness = await scene.run("a", "begin(); plain(MIB); tell(1); hear(); tell(plain(MIB)[0])")
    await witness.answer()
    noise = Noise(scene.home("a") / "run" / "arbiter.sock", N_MESSAGES)
    await asyncio.to_thread(noise.run)
    assert noise.n_cut > N_MESSAGES / 50
    await until(lambda: len(scene.arbiter.containers["a"].connections) == 1)
    await witness.say()
    assert await witness.answer() == 0
    await until(lambda: scene.used_mib("a") in (0, 2))


async def test_a_slot_is_not_given_out_again_while_it_is_used(scene: Scene) -> None:
    """A program that replaced itself connects again, perhaps before its old end was noticed."""
    scene.container("a")
    slots = []
    with connect(scene, "a") as first, connect(scene, "a") as second:
        for sock in (first, second):
            sock.send(HELLO)
            data, files, _, _ = await asyncio.to_thread(socket.recv_fds, sock, 64, 2)
            slots.append(wire.MESSAGE.unpack(data)[3])
            for each in files:
                os.close(each)
        first.close()
        await until(lambda: len(scene.arbiter.containers["a"].connections) == 1)
        assert scene.table("a").owners() == [(slots[1], os.getpid())]


async def test_descriptors_that_are_no_tables_are_not_taken(scene: Scene) -> None:
    scene.container("a")
    with connect(scene, "a") as sock, scene.card.path.open("rb") as file:
        message = Message(Kind.HELLO, value=wire.VERSION).encode()
        socket.send_fds(sock, [message], [file.fileno(), file.fileno()])
        await until(lambda: scene.n_processes() == 1)
        data, files, _, _ = socket.recv_fds(sock, 64, 2)
        assert data[0] == Kind.WELCOME
        assert len(files) == 2


def sealed(seals: int) -> int:
    """A file that is a table by its size, with these seals."""
    file = os.memfd_create("table", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, wire.TABLE_SIZE)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def read_only() -> int:
    """One with the seals of a table, that can't be written through this descriptor."""
    file = sealed(FIXED | fcntl.F_SEAL_SEAL)
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
    finally:
        os.close(file)


@pytest.mark.parametrize(
    "make",
    [
        partial(sealed, fcntl.F_SEAL_SHRINK),
        partial(sealed, FIXED | fcntl.F_SEAL_WRITE),
        partial(sealed, FIXED | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL),
        read_only,
    ],
)
async def test_a_table_that_cannot_be_written_is_not_taken_and_a_new_one_is_given(
    scene: Scene, make: Callable[[], int]
) -> None:
    scene.container("a")
    file = make()
    with connect(scene, "a") as sock:
        socket.send_fds(sock, [HELLO], [file])
        data, files, _, _ = await asyncio.to_thread(socket.recv_fds, sock, 64, 2)
        assert data[0] == Kind.WELCOME
        assert os.fstat(files[0]).st_ino != os.fstat(file).st_ino
        for each in (file, *files):
            os.close(each)


def _said(whose: str, _: socket.socket) -> str:
    return whose


async def test_who_is_known_to_be_of_another_pod_is_turned_away(scene: Scene) -> None:
    scene.container("a")
    for whose, is_let_in in (("b", False), ("a", True), ("", True)):
        scene.arbiter.pod_of_peer = partial(_said, whose)
        with connect(scene, "a") as sock:
            heard = b""
            with contextlib.suppress(ConnectionError):
                sock.send(HELLO)
                heard = await asyncio.to_thread(sock.recv, 64)
            assert bool(heard) is is_let_in
        await until(lambda: not scene.arbiter.containers["a"].connections)


async def test_a_container_has_as_many_connections_as_slots_and_others_still_come_in(
    scene: Scene,
) -> None:
    scene.container("a")
    scene.container("b")
    crowd = []
    for _ in range(wire.MAX_SLOTS + 20):
        crowd.append(connect(scene, "a"))
        await asyncio.sleep(0)
    await until(lambda: len(scene.arbiter.containers["a"].connections) == wire.MAX_SLOTS)
    assert await scene.ask("b", "begin(); tell(plain(MIB)[0])") == 0
    for sock in crowd:
        sock.close()
    await until(lambda: not scene.arbiter.containers["a"].connections)
    assert await scene.ask("a", "begin(); tell(plain(MIB)[0])") == 0


async def test_without_descriptors_it_rests_and_then_lets_everybody_in(scene: Scene) -> None:
    scene.container("a")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    crowd = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(100)]
    broken = list[dict[str, object]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, what: broken.append(what))
    resource.setrlimit(resource.RLIMIT_NOFILE, (crowd[-1].fileno() + 20, before[1]))
    try:
        with capture_logs() as logs:
            for sock in crowd:
                sock.connect(str(scene.home("a") / "run" / "arbiter.sock"))
            await until(lambda: bool(logs))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert logs[0]["event"] == "could not accept a process"
    assert broken == []
    await until(lambda: len(scene.arbiter.containers["a"].connections) == 100)
    for sock in crowd:
        sock.close()


async def test_numbers_of_processes_in_a_table_may_be_anything(scene: Scene) -> None:
    """They are freed like those of processes that are gone."""
    scene.container("a")
    program = await scene.run("a", "begin(); plain(MIB); tell(1); hear()")
    await program.answer()
    table = scene.table("a")
    for pid in (1 << 31, (1 << 32) - 1):
        assert table.take_slot(pid) > 0
    await scene.stop()
    scene.start(grace_s=0.5)
    scene.container("a")
    await until(lambda: scene.n_processes() == 1)
    await until(lambda: len(scene.table("a").owners()) == 1)


def admit_without_a_folder(scene: Scene) -> None:
    """A container that asks for the whole card, whose socket can't be made."""
    (scene.root / "file").write_text("")
    claim, cards = Claim("a", Fraction(1), Fraction(1)), (ContainerCard(UUID, 64),)
    with pytest.raises(OSError, match="file"):
        scene.arbiter.admit(claim, scene.root / "file" / "arbiter.sock", cards)


async def test_a_socket_that_could_not_be_made_is_made_the_next_time(scene: Scene) -> None:
    admit_without_a_folder(scene)
    scene.container("a", "1")
    with connect(scene, "a") as sock:
        sock.send(HELLO)
        assert (await asyncio.to_thread(sock.recv, 64))[0] == Kind.WELCOME


async def test_a_container_without_a_socket_takes_no_part_of_the_card(scene: Scene) -> None:
    admit_without_a_folder(scene)
    scene.container("b", "1")
