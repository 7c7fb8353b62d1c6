"""The GPUs that kubelet has given to the pods of this node, from its PodResources API (v1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from extender.api.names import NVIDIA_GPU
from gpu_shim.agent.proto import podresources_pb2 as pb

_LIST: Final = "/v1.PodResourcesLister/List"
DEADLINE_S: Final = 5.0
#: Hundreds of pods with hundreds of devices each.
_MOST_BYTES: Final = 16 << 20


class KubeletError(Exception):
    """Kubelet did not answer; the message says why."""


@dataclass(slots=True, frozen=True)
class Given:
    """GPUs that one pod has from the device plugin."""

    namespace: str
    name: str
    uuids: tuple[str, ...]


class PodResources:
    """A connection to kubelet's socket; it reconnects by itself when kubelet restarts."""

    def __init__(self, socket: Path) -> None:
        # Otherwise the path is sent as the server's name, which strict servers refuse.
        options = [
            ("grpc.default_authority", "localhost"),
            ("grpc.max_receive_message_length", _MOST_BYTES),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}", options=options)
        self._list = self._channel.unary_unary(
            _LIST,
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )

    async def given(self) -> Sequence[Given]:
        """Every pod that has whole GPUs; raises KubeletError."""
        try:
            answer = await self._list(pb.ListPodResourcesRequest(), timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"{error.code().name}: {error.details()}") from error
        found = (Given(pod.namespace, pod.name, _uuids(pod)) for pod in answer.pod_resources)
        return [each for each in found if each.uuids]

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _uuids(pod: pb.PodResources) -> tuple[str, ...]:
    """Cards from the device plugin; a replicated card is named `<uuid>::<copy>`."""
    found = dict.fromkeys(
        device.partition("::")[0]
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == NVIDIA_GPU
        for device in devices.device_ids
    )
    return tuple(found)
