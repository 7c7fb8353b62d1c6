"""The adjustment of a container that shares cards.

The pod's folder is mounted read-only: its libraries, its caps, its socket (connecting to a socket
works through a read-only mount). With `/etc/ld.so.preload` the loader loads the libraries into
every program, even one that drops its environment.
"""

import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from gpu_shim.agent.cdi import PREFERRED, CdiDevices
from gpu_shim.agent.nri.session import Refusal
from gpu_shim.agent.proto import nri_pb2 as pb
from gpu_shim.home import INSIDE

PRELOAD: Final = "/etc/ld.so.preload"
#: Where we mount the driver's libraries in a container: the shadow libraries and NVIDIA's own
#: images look here.
DRIVER: Final = "/usr/local/nvidia/lib64"

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
_OURS: Final = (VISIBLE, CAPABILITIES)

_READ_ONLY: Final = ("bind", "ro", "nosuid", "nodev", "exec", "rprivate")

#: How a container gets cards and driver: by CDI name (the specification comes from NVIDIA's
#: container toolkit), by environment (NVIDIA's runtime reads it), or as files that we mount.
Way = Literal["cdi", "environment", "files"]


@dataclass(slots=True, frozen=True)
class Node:
    """One device file of the host."""

    path: str
    major: int
    minor: int


@dataclass(slots=True, frozen=True)
class Delivery:
    """How containers get cards. `driver` and `nodes` (by UUID; "" for all) are for files.

    With CDI, a card that no specification of the node names is delivered as files if there is a
    `driver`, else by environment: the container may then start without the card, but with an
    unknown CDI name the runtime would certainly refuse it.
    """

    way: Way = "cdi"
    driver: Path | None = None
    nodes: Mapping[str, Sequence[Node]] = field(default_factory=dict)
    cdi: CdiDevices = field(default_factory=lambda: CdiDevices(kind=PREFERRED[0]))

    @property
    def fallback(self) -> Way:
        """How a card without a CDI device is delivered."""
        return "files" if self.driver is not None else "environment"

    def cdi_names(self, uuids: Sequence[str]) -> list[str]:
        """CDI devices of these cards; empty if one of them has none, or without CDI."""
        if self.way != "cdi":
            return []
        names = [self.cdi.name_of(uuid) for uuid in uuids]
        return names if all(names) else []

    def problems(self, uuids: Iterable[str]) -> list[str]:
        """A sentence for every card without a CDI device; empty without CDI."""
        if self.way != "cdi":
            return []
        return [
            f"no CDI specification of this node names {uuid}: delivered by {self.fallback}"
            for uuid in uuids
            if not self.cdi.name_of(uuid)
        ]


def protect(home: Path, container: pb.Container) -> pb.ContainerAdjustment:
    """The mounts that enforce the pod's caps; raises Refusal if a volume would hide them."""
    for mount in container.mounts:
        place = posixpath.normpath("/" + mount.destination.lstrip("/"))
        if place.startswith(INSIDE + "/"):
            raise Refusal(f"{container.name}: a volume at {place} would hide Ballast's libraries")
    preload = home / "ld.so.preload"
    mounts = [_mount(home, INSIDE), _mount(preload, PRELOAD)]
    return pb.ContainerAdjustment(mounts=mounts)


def deliver(
    uuids: Iterable[str], delivery: Delivery, container: pb.Container
) -> pb.ContainerAdjustment:
    """Makes exactly these cards visible; without any, no card at all.

    A variable that occurs twice in a container's environment keeps its second value whatever a
    plugin sets, so it is refused.
    """
    names = Counter(each.partition("=")[0] for each in container.env)
    for name in _OURS:
        if names[name] > 1:
            raise Refusal(f"{container.name}: {name} is set {names[name]} times; leave it out")
    uuids = list(uuids)
    devices = delivery.cdi_names(uuids)
    way = delivery.way if devices or delivery.way != "cdi" else delivery.fallback
    made = pb.ContainerAdjustment()
    visible = ",".join(uuids) if way == "environment" else ""
    made.env.append(pb.KeyValue(key=VISIBLE, value=visible or "void"))
    if way == "environment" and uuids:
        made.env.append(pb.KeyValue(key=CAPABILITIES, value="compute,utility"))
    elif way == "cdi":
        made.CDI_devices.extend(pb.CDIDevice(name=name) for name in devices)
    elif way == "files" and uuids:
        made.MergeFrom(_files(uuids, delivery))
    return made


def _files(uuids: Sequence[str], delivery: Delivery) -> pb.ContainerAdjustment:
    made = pb.ContainerAdjustment()
    if delivery.driver is not None:
        made.mounts.append(_mount(delivery.driver, DRIVER))
    for uuid in ("", *uuids):
        for node in delivery.nodes.get(uuid, ()):
            mode = pb.OptionalFileMode(value=0o666)
            made.linux.devices.append(
                pb.LinuxDevice(
                    path=node.path, type="c", major=node.major, minor=node.minor, file_mode=mode
                )
            )
    return made


def _mount(source: Path, destination: str) -> pb.Mount:
    return pb.Mount(
        destination=destination, type="bind", source=str(source), options=list(_READ_ONLY)
    )


def is_protected(container: pb.Container, state: Path) -> bool:
    """Whether a running container already has our preload."""
    return any(
        mount.destination == PRELOAD and mount.source.startswith(f"{state}/")
        for mount in container.mounts
    )
