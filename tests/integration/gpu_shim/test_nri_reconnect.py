"""The plugin reconnects to a runtime that starts late, restarts, refuses or sends nonsense."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpu_shim.agent.agent import Agent
from gpu_shim.agent.nri.adjust import Delivery
from gpu_shim.agent.nri.plugin import NodePlugin
from gpu_shim.agent.proto import nri_pb2 as pb
from gpu_shim.agent.proto import ttrpc_pb2
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.protocol.pages import Library
from tests.integration.gpu_shim.containers import until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class Runtime:
    """A runtime's socket. Every connection is met by the next manner, the last one for ever."""

    socket: Path
    manners: list[Callable[["Runtime", Streams], object]] = field(default_factory=list)
    n_met: int = 0
    open: list[asyncio.StreamWriter] = field(default_factory=list)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._meet, str(self.socket))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self.open:
                writer.close()
            self.open.clear()
            self._server = None

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.append(writer)
        self.n_met += 1
        manner = self.manners.pop(0) if len(self.manners) > 1 else self.manners[0]
        header = await reader.readexactly(8)
        await reader.readexactly(struct.unpack(">II", header)[1])
        manner(self, (reader, writer))


def _say(writer: asyncio.StreamWriter, connection: int, kind: int, payload: bytes) -> None:
    head = struct.pack(">IIBB", len(payload), 1, kind, 0)
    writer.write(struct.pack(">II", connection, len(head) + len(payload)) + head + payload)


def welcomes(_runtime: Runtime, streams: Streams) -> None:
    """Registers the plugin and configures it."""
    _say(streams[1], 2, 2, ttrpc_pb2.Response().SerializeToString())
    request = ttrpc_pb2.Request(
        service="nri.pkg.api.v1alpha1.Plugin",
        method="Configure",
        payload=pb.ConfigureRequest(runtime_name="fake").SerializeToString(),
    )
    _say(streams[1], 1, 1, request.SerializeToString())


def refuses(_runtime: Runtime, streams: Streams) -> None:
    status = ttrpc_pb2.Status(code=9, message="not today")
    _say(streams[1], 2, 2, ttrpc_pb2.Response(status=status).SerializeToString())


def talks_nonsense(_runtime: Runtime, streams: Streams) -> None:
    streams[1].write(b"\xff" * 100)


def hangs_up(_runtime: Runtime, streams: Streams) -> None:
    streams[1].close()


@pytest.fixture
async def scene(place: Path, native: Path) -> AsyncIterator[tuple[Runtime, NodePlugin]]:
    runtime = Runtime(place / "nri.sock", [welcomes])
    agent = Agent("n", [], Arbiter(Library(native / "libballast-pages.so")), native, place)
    plugin = NodePlugin(agent, Delivery(), runtime.socket)
    serving = asyncio.create_task(plugin.run())
    yield runtime, plugin
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    await runtime.stop()


async def test_a_runtime_that_comes_late_and_restarts_is_found_each_time(
    scene: tuple[Runtime, NodePlugin],
) -> None:
    runtime, plugin = scene
    await runtime.start()
    await until(lambda: plugin.is_connected)
    await runtime.stop()
    await until(lambda: not plugin.is_connected)
    runtime.socket.unlink(missing_ok=True)
    await runtime.start()
    await until(lambda: plugin.is_connected)


async def test_whatever_a_runtime_says_it_is_asked_again(
    scene: tuple[Runtime, NodePlugin],
) -> None:
    runtime, plugin = scene
    runtime.manners = [refuses, talks_nonsense, hangs_up, welcomes]
    await runtime.start()
    await until(lambda: plugin.is_connected)
    assert runtime.n_met == 4
