"""One connection to a runtime that the test simulates byte by byte."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from gpu_shim.agent.nri.frames import FramingError
from gpu_shim.agent.nri.session import NriSession, Refusal, RegistrationError
from gpu_shim.agent.proto import nri_pb2 as pb
from gpu_shim.agent.proto import ttrpc_pb2

SERVICE = "nri.pkg.api.v1alpha1.Plugin"


class Answers:
    """Stands where the plugin stands."""

    def __init__(self) -> None:
        self.seen = list[Any]()
        self.may_go_on = asyncio.Event()

    async def configure(self, request: pb.ConfigureRequest) -> pb.ConfigureResponse:
        self.seen.append(request)
        return pb.ConfigureResponse(events=8)

    async def synchronize(self, request: pb.SynchronizeRequest) -> pb.SynchronizeResponse:
        return pb.SynchronizeResponse(more=request.more)

    async def create(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        if request.container.name == "no":
            raise Refusal("it has no row")
        if request.container.name == "bug":
            raise KeyError("oops")
        if request.container.name == "slow":
            await self.may_go_on.wait()
        return pb.CreateContainerResponse()

    async def stopped(self, request: pb.ContainerRequest) -> pb.StopContainerResponse:
        return pb.StopContainerResponse()

    async def removed(self, request: pb.ContainerRequest) -> pb.Empty:
        self.seen.append(request)
        return pb.Empty()


@dataclass(slots=True)
class Runtime:
    """The other side: it knows the protocol by its published form, not by our code."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answers: Answers
    session: "asyncio.Task[None]"

    async def hear(self) -> tuple[int, int, int, bytes]:
        """(connection, stream, kind, payload) of the next message, which fits into one frame."""
        connection, n_bytes = struct.unpack(">II", await self.reader.readexactly(8))
        frame = await self.reader.readexactly(n_bytes)
        _, stream, kind, _ = struct.unpack_from(">IIBB", frame)
        return connection, stream, kind, frame[10:]

    def say(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        head = struct.pack(">IIBB", len(payload), stream, kind, 0)
        self.writer.write(struct.pack(">II", connection, len(head + payload)) + head + payload)

    async def welcome(self, code: int = 0, why: str = "") -> None:
        """Answer the registration."""
        connection, stream, kind, payload = await self.hear()
        request = ttrpc_pb2.Request.FromString(payload)
        assert (connection, kind) == (2, 1)
        assert request.service == "nri.pkg.api.v1alpha1.Runtime"
        told = pb.RegisterPluginRequest.FromString(request.payload)
        assert (request.method, told.plugin_name, told.plugin_idx) == ("RegisterPlugin", "b", "90")
        status = ttrpc_pb2.Status(code=code, message=why) if code else None
        self.say(2, stream, 2, ttrpc_pb2.Response(status=status).SerializeToString())

    def ask(self, stream: int, method: str, payload: bytes, service: str = SERVICE) -> None:
        request = ttrpc_pb2.Request(service=service, method=method, payload=payload)
        self.say(1, stream, 1, request.SerializeToString())

    async def answer(self) -> tuple[int, int, str, bytes]:
        """(stream, code, words, payload) of the next answer."""
        connection, stream, kind, payload = await self.hear()
        assert (connection, kind) == (1, 2)
        response = ttrpc_pb2.Response.FromString(payload)
        return stream, response.status.code, response.status.message, response.payload

    async def create(self, name: str, stream: int = 1) -> tuple[int, str]:
        request = pb.CreateContainerRequest(container=pb.Container(name=name))
        self.ask(stream, "CreateContainer", request.SerializeToString())
        _, code, words, _ = await self.answer()
        return code, words


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    answers = Answers()
    session = asyncio.create_task(NriSession(reader, writer, answers).run("b", "90"))
    made = Runtime(*await asyncio.open_connection(sock=theirs), answers, session)
    yield made
    made.writer.close()
    session.cancel()
    with contextlib.suppress(asyncio.CancelledError, FramingError, RegistrationError, OSError):
        await session


async def test_it_registers_and_answers_what_it_is_asked(runtime: Runtime) -> None:
    await runtime.welcome()
    told = pb.ConfigureRequest(runtime_name="containerd", request_timeout=2000)
    runtime.ask(1, "Configure", told.SerializeToString())
    stream, code, _, payload = await runtime.answer()
    assert (stream, code) == (1, 0)
    assert pb.ConfigureResponse.FromString(payload).events == 8
    runtime.ask(3, "Shutdown", b"")
    assert (await runtime.answer())[:2] == (3, 0)


async def test_a_refusal_reaches_the_runtime_in_words_and_a_bug_does_not(runtime: Runtime) -> None:
    await runtime.welcome()
    assert await runtime.create("no") == (9, "it has no row")
    code, words = await runtime.create("bug")
    assert code == 13
    assert "oops" not in words
    assert await runtime.create("fine") == (0, "")


@pytest.mark.parametrize(
    ("method", "payload", "service", "code"),
    [
        ("CreateContainer", b"\xff\xff\xff", SERVICE, 3),
        ("Explode", b"", SERVICE, 12),
        ("CreateContainer", b"", "other.Service", 12),
    ],
)
async def test_what_is_not_understood_is_an_answer_and_the_next_call_goes_on(
    runtime: Runtime, method: str, payload: bytes, service: str, code: int
) -> None:
    await runtime.welcome()
    runtime.ask(1, method, payload, service)
    assert (await runtime.answer())[1] == code
    runtime.say(1, 5, 1, b"\xff\xff")
    assert (await runtime.answer())[1] == 3
    assert await runtime.create("fine", 7) == (0, "")


async def test_one_call_that_waits_holds_up_no_other(runtime: Runtime) -> None:
    await runtime.welcome()
    slow = pb.CreateContainerRequest(container=pb.Container(name="slow"))
    runtime.ask(1, "CreateContainer", slow.SerializeToString())
    assert await runtime.create("fine", 3) == (0, "")
    runtime.answers.may_go_on.set()
    assert (await runtime.answer())[0] == 1


async def test_older_runtimes_tell_of_ends_by_their_common_event(runtime: Runtime) -> None:
    await runtime.welcome()
    for event in (pb.REMOVE_CONTAINER, pb.REMOVE_POD_SANDBOX):
        told = pb.StateChangeEvent(
            event=event, pod=pb.PodSandbox(uid="u"), container=pb.Container(id="c")
        )
        runtime.ask(1, "StateChange", told.SerializeToString())
        await runtime.answer()
    first, second = runtime.answers.seen
    assert (first.pod.uid, first.container.id) == ("u", "c")
    assert (second.pod.uid, second.HasField("container")) == ("u", False)


async def test_it_ends_when_the_runtime_hangs_up(runtime: Runtime) -> None:
    await runtime.welcome()
    runtime.writer.close()
    await asyncio.wait_for(runtime.session, 60)


async def test_a_runtime_that_does_not_want_us_says_why(runtime: Runtime) -> None:
    await runtime.welcome(code=5, why="no plugins here")
    with pytest.raises(RegistrationError, match="no plugins here"):
        await asyncio.wait_for(runtime.session, 60)


async def test_bytes_that_are_no_frames_end_the_connection_only(runtime: Runtime) -> None:
    await runtime.welcome()
    runtime.writer.write(b"\xff" * 64)
    with pytest.raises(FramingError):
        await asyncio.wait_for(runtime.session, 60)
