"""Watches a cluster, and takes looks at it. Lists and watches only."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from extender.api.events import Event, Removed, Upserted
from extender.api.kinds import GpuDepartment, GpuNodePool, GpuProject, GpuTopology
from extender.api.names import API_VERSION
from extender.api.objects import Node, Pod, PodDisruptionBudget, PriorityClass
from extender.cli.ask import listed_or_none
from extender.convert.fields import Manifest, Served, UnreadableError, documents_of, read_documents
from extender.kube.client import Client
from extender.kube.errors import KubeError, Unavailable
from extender.kube.reflector import Reflector
from extender.kube.resources import DISRUPTION_BUDGETS, NODES, PODS, PRIORITY_CLASSES, Resource
from extender.kube.transport import Call
from extender.shadow.adoption import Adopted, QueueObject, Seen, adopt
from extender.shadow.peers import GROUPS, WORKLOADS, read_peers
from extender.shadow.record import Record
from extender.view.picture import Picture

WATCHED: Final[tuple[Resource[Any], ...]] = (NODES, PODS, DISRUPTION_BUDGETS, PRIORITY_CLASSES)
_KINDS: Final[dict[str, type[QueueObject]]] = {
    "GpuDepartment": GpuDepartment,
    "GpuProject": GpuProject,
    "GpuNodePool": GpuNodePool,
    "GpuTopology": GpuTopology,
}
#: A readable cluster answers its first lists in less time.
_SYNC_S: Final = 120.0


#: The number of kinds, at the look at which most lists failed.
OLD_LISTS: Final = "lists of the other scheduler's objects failed, so a look used those before"


class QueueFileError(ValueError):
    """A file of queues is invalid; the message says why."""


@dataclass(slots=True, frozen=True)
class Window:
    """For how long to look, and how often, in seconds; 0: one look."""

    for_s: float = 0.0
    every_s: float = 60.0


class Watched:
    """Every object of the cluster, as of the last watch event."""

    def __init__(self) -> None:
        self._objects: dict[type, dict[str, Any]] = {each.kind: {} for each in WATCHED}
        self._ended: list[Pod] = []

    def deliver(self, event: Event) -> None:
        """Apply an event."""
        match event:
            case Upserted(obj):
                self._objects[type(obj)][obj.metadata.uid] = obj
            case Removed(kind=kind, uid=uid):
                gone = self._objects[kind].pop(uid, None)
                if isinstance(gone, Pod) and gone.spec.node_name:
                    self._ended.append(gone)

    def adopted(
        self, queues: Sequence[QueueObject], groups: list[Manifest], workloads: list[Manifest]
    ) -> Adopted:
        """The current cluster as if Ballast ran it, and the pods that ended since the last look."""
        ended, self._ended = self._ended, []
        seen = Seen(
            nodes=self._objects[Node].values(),
            pods=self._objects[Pod].values(),
            ended=ended,
            budgets=self._objects[PodDisruptionBudget].values(),
            classes=self._objects[PriorityClass].values(),
            peers=read_peers(groups, workloads),
        )
        return adopt(seen, queues)


async def watch(
    client: Client,
    queues: Sequence[QueueObject],
    window: Window,
    tell: Callable[[Record], None],
) -> Record:
    """The record of all looks; `tell` is called after each. Cancellation ends the window early."""
    for resource in WATCHED:
        # A refusal is reported in one sentence; a reflector would retry for ever.
        await client.send(Call("GET", resource.url(), query={"limit": "1"}))
    watched, peers = Watched(), PeerLists(client)
    record = Record(is_by_namespace=not queues)
    reflectors = [Reflector(client, resource, watched.deliver) for resource in WATCHED]
    tasks = [asyncio.ensure_future(each.run()) for each in reflectors]
    try:
        async with asyncio.timeout(_SYNC_S):
            await asyncio.gather(*(each.wait_synced() for each in reflectors))
        ends = time.monotonic() + window.for_s
        while True:
            n_failed = await peers.refresh()
            done = watched.adopted(queues, peers.groups, peers.workloads)
            done.assumed += Counter({OLD_LISTS: n_failed})
            record.look(Picture(done.state.snapshot(int(time.time()))), done.assumed, done.started)
            tell(record)
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return record
            await asyncio.sleep(min(left_s, window.every_s))
    except asyncio.CancelledError:
        if not record.looks:
            raise
        return record
    except TimeoutError:
        raise Unavailable(f"the cluster could not be listed within {_SYNC_S:.0f} s") from None
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


class PeerLists:
    """The objects of other schedulers, as last listed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._listed: dict[str, list[Manifest]] = {}

    @property
    def groups(self) -> list[Manifest]:
        """Gangs of KAI Scheduler and Volcano."""
        return [each for served in GROUPS for each in self._listed[served.group]]

    @property
    def workloads(self) -> list[Manifest]:
        """Workloads of Kueue."""
        return self._listed[WORKLOADS.group]

    async def refresh(self) -> int:
        """List them again; returns how many kinds failed and keep their old list. Raises KubeError
        if a first list fails."""
        n_failed = 0
        for served in (*GROUPS, WORKLOADS):
            try:
                self._listed[served.group] = await _served(self._client, served)
            except KubeError:
                if served.group not in self._listed:
                    raise
                n_failed += 1
        return n_failed


async def _served(client: Client, served: Served) -> list[Manifest]:
    """The objects of a peer's kind; empty if it does not exist or may not be listed."""
    for version in served.versions:
        root = f"{served.group}/{version}"
        items = await listed_or_none(client, f"/apis/{root}/{served.plural}")
        if items is not None:
            return [{**each, "apiVersion": root} for each in items]
    return []


def read_queues(path: Path, text: str) -> list[QueueObject]:
    """The queues of a file; other objects are skipped. Raises QueueFileError."""
    try:
        documents = read_documents(text)
    except UnreadableError as error:
        raise QueueFileError(f"{path}: {error}") from None
    try:
        found = _read([each for each in documents_of(documents) if each])
    except (msgspec.ValidationError, ValueError) as error:
        raise QueueFileError(f"{path}: {error}") from None
    if not any(isinstance(each, GpuProject) for each in found):
        raise QueueFileError(
            f"{path}: has no GpuProject of {API_VERSION}, such as ballast convert prints"
        )
    return found


def _read(documents: list[Manifest]) -> list[QueueObject]:
    found: list[QueueObject] = []
    for each in documents:
        kind = _KINDS.get(str(each.get("kind")))
        if kind is not None and each.get("apiVersion") == API_VERSION:
            meta = each.get("metadata")
            name = meta.get("name") if isinstance(meta, dict) else None
            try:
                read = msgspec.convert(each, kind, strict=False)
                if not read.metadata.name:
                    raise msgspec.ValidationError("Object missing required field `metadata.name`")
                found.append(read)
            except msgspec.ValidationError as error:
                raise msgspec.ValidationError(
                    f"{each['kind']} {name or 'without a name'}: {error}"
                ) from None
    return found
