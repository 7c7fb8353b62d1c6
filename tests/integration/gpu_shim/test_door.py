"""What a process may send: nothing it says harms anybody but itself."""

import asyncio
import os
import random
import socket

from gpu_shim.arbiter import wire
from gpu_shim.arbiter.wire import Kind, Message
from tests.integration.gpu_shim.scene import Scene, until

#: BALLAST_FUZZ=1000000 for a long run.
N_MESSAGES = int(os.environ.get("BALLAST_FUZZ", "3000"))


def door(scene: Scene, name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(5)
    sock.connect(str(scene.home(name) / "run" / "arbiter.sock"))
    return sock


async def test_noise_ends_its_own_connection_and_nothing_else(scene: Scene) -> None:
    scene.container("a")
    witness = await scene.run("a", "begin(); plain(MIB); tell(1); hear(); tell(plain(MIB)[0])")
    await witness.answer()
    noise, sock, n_cut = random.Random(7), door(scene, "a"), 0
    hello = Message(Kind.HELLO, value=wire.VERSION).encode()
    for _ in range(N_MESSAGES):
        size = noise.choice([0, 1, 15, 16, 16, 16, 17, 64, 4096])
        data = bytearray(noise.randbytes(size))
        if size == 16 and noise.random() < 0.7:
            data[0], data[1], data[2:4] = noise.randrange(7), noise.randrange(3), b"\0\0"
        try:
            sock.send(hello if noise.random() < 0.1 else bytes(data))
        except OSError:
            n_cut += 1
            sock.close()
            sock = door(scene, "a")
        await asyncio.sleep(0)
    sock.close()
    assert n_cut > 0
    await until(lambda: len(scene.arbiter.containers["a"].connections) == 1)
    await witness.say()
    assert await witness.answer() == 0
    await until(lambda: scene.used_mib("a") in (0, 2))


async def test_descriptors_that_are_no_tables_are_not_taken(scene: Scene) -> None:
    scene.container("a")
    with door(scene, "a") as sock, scene.card.path.open("rb") as file:
        message = Message(Kind.HELLO, value=wire.VERSION).encode()
        socket.send_fds(sock, [message], [file.fileno(), file.fileno()])
        await until(lambda: len(scene.arbiter.referee.processes) == 1)
        data, files, _, _ = socket.recv_fds(sock, 64, 2)
        assert data[0] == Kind.WELCOME
        assert len(files) == 2


async def test_a_container_has_as_many_connections_as_slots_and_others_still_come_in(
    scene: Scene,
) -> None:
    scene.container("a")
    scene.container("b")
    crowd = []
    for _ in range(wire.MAX_SLOTS + 20):
        crowd.append(door(scene, "a"))
        await asyncio.sleep(0)
    await until(lambda: len(scene.arbiter.containers["a"].connections) == wire.MAX_SLOTS)
    assert await scene.ask("b", "begin(); tell(plain(MIB)[0])") == 0
    for sock in crowd:
        sock.close()
    await until(lambda: not scene.arbiter.containers["a"].connections)
    assert await scene.ask("a", "begin(); tell(plain(MIB)[0])") == 0
