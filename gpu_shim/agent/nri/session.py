"""One connection to a container runtime: we register, then answer its calls.

The runtime holds a lock while it waits for us, and drops a plugin that exceeds its time limit (two
seconds by default), so no handler may wait for anything slow.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from gpu_shim.agent.nri.frames import PLUGIN, RUNTIME, Decoder, Frame, FrameKind, encode
from gpu_shim.agent.proto import nri_pb2 as pb
from gpu_shim.agent.proto import ttrpc_pb2

#: The gRPC status codes of our responses.
OK, INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 0, 3, 9, 12, 13

REGISTER_S: Final = 5.0
_PACKAGE: Final = "nri.pkg.api.v1alpha1"
_READ: Final = 1 << 16
#: More concurrent calls than a runtime makes, which has one in progress at a time.
_MOST_CALLS: Final = 64

_log = structlog.get_logger("gpu_shim.nri")


class RegistrationError(Exception):
    """The runtime refused the registration; the message is the runtime's."""


class Refusal(Exception):  # noqa: N818
    """The call is refused; the message reaches the pod's events."""


class Plugin(Protocol):
    """Handles the runtime's calls. An exception other than Refusal is reported as a bug."""

    async def configure(self, request: pb.ConfigureRequest) -> pb.ConfigureResponse:
        """Choose the events to receive."""

    async def synchronize(self, request: pb.SynchronizeRequest) -> pb.SynchronizeResponse:
        """Record the running containers; they come in parts if `more` is set."""

    async def create(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        """The container's adjustment; on Refusal it is not created."""

    async def stopped(self, request: pb.ContainerRequest) -> pb.StopContainerResponse:
        """A container is stopping."""

    async def removed(self, request: pb.ContainerRequest) -> pb.Empty:
        """A container was removed, or a whole pod if none is named."""


@dataclass(slots=True)
class NriSession:
    """Serves one connection until it ends."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    plugin: Plugin
    _is_registered: bool = False
    _calls: set["asyncio.Task[None]"] = field(default_factory=set)

    async def run(self, name: str, index: str) -> None:
        """Register and serve. Returns when the runtime hangs up.

        Raises RegistrationError, FramingError, OSError.
        """
        request = pb.RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        call = ttrpc_pb2.Request(
            service=f"{_PACKAGE}.Runtime",
            method="RegisterPlugin",
            payload=request.SerializeToString(),
            timeout_nano=int(REGISTER_S * 1e9),
        )
        late = asyncio.get_running_loop().call_later(REGISTER_S, self._give_up)
        try:
            self._send(Frame(RUNTIME, 1, FrameKind.REQUEST, call.SerializeToString()))
            await self._read()
        finally:
            late.cancel()
            for task in self._calls:
                task.cancel()
            self.writer.close()
        if not self._is_registered:
            raise RegistrationError("no answer to our registration")

    def _give_up(self) -> None:
        if not self._is_registered:
            self.reader.feed_eof()

    async def _read(self) -> None:
        decoder = Decoder()
        while data := await self.reader.read(_READ):
            for message in decoder.feed(data):
                self._take(message)
            await self.writer.drain()

    def _take(self, message: Frame) -> None:
        if message.connection == RUNTIME and message.kind == FrameKind.RESPONSE:
            self._take_registration(message)
        elif message.connection == PLUGIN and message.kind == FrameKind.REQUEST:
            if len(self._calls) >= _MOST_CALLS:
                self._answer(message.stream, INTERNAL, "too many calls at once")
                return
            task = asyncio.ensure_future(self._serve(message))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    def _take_registration(self, message: Frame) -> None:
        try:
            status = ttrpc_pb2.Response.FromString(message.payload).status
        except DecodeError as error:
            raise RegistrationError(f"an answer that is not understood: {error}") from error
        if status.code != OK:
            raise RegistrationError(status.message)
        self._is_registered = True

    # -- calls of the runtime ------------------------------------------------------------------

    async def _serve(self, message: Frame) -> None:
        try:
            request = ttrpc_pb2.Request.FromString(message.payload)
            answer = await self._call(request)
        except DecodeError as error:
            self._answer(message.stream, INVALID_ARGUMENT, f"not understood: {error}")
        except Refusal as error:
            self._answer(message.stream, FAILED_PRECONDITION, str(error))
        except NotImplementedError as error:
            self._answer(message.stream, UNIMPLEMENTED, str(error))
        except Exception:
            _log.exception("failed to answer the runtime")
            self._answer(message.stream, INTERNAL, "the GPU agent of this node has an error")
        else:
            self._answer(message.stream, OK, "", answer.SerializeToString())

    async def _call(self, request: ttrpc_pb2.Request) -> Proto:
        found = self._methods().get(request.method)
        if found is None or request.service != f"{_PACKAGE}.Plugin":
            raise NotImplementedError(f"no {request.service}/{request.method}")
        kind, method = found
        return await method(kind.FromString(request.payload))

    def _methods(self) -> "Mapping[str, tuple[type[Proto], Callable[..., Awaitable[Proto]]]]":
        plugin = self.plugin
        return {
            "Configure": (pb.ConfigureRequest, plugin.configure),
            "Synchronize": (pb.SynchronizeRequest, plugin.synchronize),
            "CreateContainer": (pb.CreateContainerRequest, plugin.create),
            "StopContainer": (pb.ContainerRequest, plugin.stopped),
            "RemoveContainer": (pb.ContainerRequest, plugin.removed),
            "RemovePodSandbox": (pb.ContainerRequest, plugin.removed),
            "StateChange": (pb.StateChangeEvent, self._changed),
            "Shutdown": (pb.Empty, self._shut_down),
        }

    async def _changed(self, event: pb.StateChangeEvent) -> pb.Empty:
        if event.event in (pb.REMOVE_CONTAINER, pb.REMOVE_POD_SANDBOX):
            request = pb.ContainerRequest(pod=event.pod)
            if event.event == pb.REMOVE_CONTAINER:
                request.container.CopyFrom(event.container)
            return await self.plugin.removed(request)
        return pb.Empty()

    async def _shut_down(self, _request: pb.Empty) -> pb.Empty:
        return pb.Empty()

    def _answer(self, stream: int, code: int, why: str, payload: bytes = b"") -> None:
        response = ttrpc_pb2.Response(payload=payload)
        if code != OK:
            response.status.CopyFrom(ttrpc_pb2.Status(code=code, message=why))
        self._send(Frame(PLUGIN, stream, FrameKind.RESPONSE, response.SerializeToString()))

    def _send(self, message: Frame) -> None:
        if not self.writer.is_closing():
            self.writer.write(encode(message))
