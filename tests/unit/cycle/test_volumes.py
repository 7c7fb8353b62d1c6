"""PersistentVolumeClaims of pending pods: what is read of them, and when again."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest
from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.objects import (
    ClaimSource,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Requirement,
    Volume,
)
from extender.api.volumes import (
    NO_PROVISIONER,
    ClaimSpec,
    ClaimStatus,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeNodeAffinity,
    VolumeSpec,
)
from extender.cycle.keepers.volumes import VolumeReader
from extender.kube.client import Client
from extender.kube.errors import NotFound, Unavailable
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from tests.support.builders import at_s, pod, project

pytestmark = pytest.mark.looptime

ZONE = NodeSelector([NodeSelectorTerm([Requirement("zone", "In", ["a"])])])
DISK = PersistentVolume(
    metadata=ObjectMeta(name="disk"), spec=VolumeSpec(node_affinity=VolumeNodeAffinity(ZONE))
)


def claim(phase: str = "Pending", *, modes: list[str] | None = None, **spec: str) -> Any:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name="data"),
        spec=ClaimSpec(access_modes=modes, **spec),
        status=ClaimStatus(phase=phase),
    )


def storage(mode: str = "WaitForFirstConsumer", **more: Any) -> StorageClass:
    return StorageClass(metadata=ObjectMeta(name="fast"), volume_binding_mode=mode, **more)


class Scene:
    """A pod that waits with the claim `data`, and the API server's objects by kind."""

    def __init__(self, *objects: Any) -> None:
        self.answers = {type(each): each for each in objects}
        self.is_away = False
        self.n_reads = 0
        self.state = ClusterState()
        made = pod("a").needs(500).build()
        volume = Volume(name="data", persistent_volume_claim=ClaimSource("data"))
        waits = replace(made, spec=replace(made.spec, volumes=[volume]))
        for obj in (project("team-a").build(), waits):
            self.state.apply(Upserted(obj))
        client: Any = create_autospec(Client, instance=True)
        client.get.side_effect = self._get
        self._reader = VolumeReader(client, self.state)

    async def _get(self, resource: Any, _name: str, _namespace: str = "") -> Any:
        if self.is_away:
            raise Unavailable("no answer")
        self.n_reads += resource.kind is PersistentVolumeClaim
        if resource.kind not in self.answers:
            raise NotFound("none")
        return self.answers[resource.kind]

    async def workload(self) -> WorkloadView:
        await self._reader.keep()
        (found,) = self.state.workloads().values()
        return found

    async def n_reads_in(self, seconds: int) -> int:
        """Claims read in this time, with a pass each second."""
        self.n_reads = 0
        for _ in range(seconds):
            await self._reader.keep()
            await asyncio.sleep(1)
        return self.n_reads


LEAVING = replace(claim(), metadata=ObjectMeta(name="data", deletion_timestamp=at_s(10)))


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], "it does not exist"),
        ([LEAVING], "it is being deleted"),
        ([claim("Lost")], "its PersistentVolume is lost"),
        ([claim("Bound", volume_name="disk")], "its PersistentVolume does not exist"),
        ([claim()], "it is not bound to a volume"),
        ([claim(storage_class_name="fast")], "its StorageClass fast does not exist"),
        ([claim(storage_class_name="fast"), storage("Immediate")], "it is not bound to a volume"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_a_pod_waits_while_its_claim_cannot_be_used(objects: list[Any], why: str) -> None:
    problem = (await Scene(*objects).workload()).problem
    assert problem is not None
    assert problem.detail == f"team-a/a: PersistentVolumeClaim data: {why}"


@pytest.mark.parametrize(
    ("objects", "doubt"),
    [
        ([claim(storage_class_name="fast"), storage()], ""),
        (
            [claim(storage_class_name="fast"), storage(provisioner=NO_PROVISIONER)],
            "gets its volume on some nodes only",
        ),
        (
            [claim(storage_class_name="fast"), storage(allowed_topologies=[NodeSelectorTerm()])],
            "gets its volume on some nodes only",
        ),
        (
            [claim(storage_class_name="fast", modes=["ReadWriteOncePod"]), storage()],
            "may be used by one pod alone",
        ),
        ([claim("Bound", volume_name="disk"), DISK], ""),
        (
            [claim("Bound", volume_name="disk", modes=["ReadWriteOncePod"]), DISK],
            "may be used by one pod alone",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_a_claim_that_may_suit_some_nodes_only_puts_its_pod_in_doubt(
    objects: list[Any], doubt: str
) -> None:
    workload = await Scene(*objects).workload()
    assert workload.problem is None
    found = workload.doubt.detail if workload.doubt else ""
    assert found.endswith(f"PersistentVolumeClaim data {doubt}" if doubt else "")
    assert bool(found) is bool(doubt)


async def test_a_bound_claim_binds_its_pod_to_the_nodes_of_its_volume() -> None:
    workload = await Scene(claim("Bound", volume_name="disk"), DISK).workload()
    assert workload.pods[0].constraints.volumes == (ZONE,)


async def test_nothing_is_evicted_for_a_claim_that_cannot_be_read() -> None:
    scene = Scene(claim(storage_class_name="fast"), storage())
    scene.is_away = True
    workload = await scene.workload()
    assert workload.problem is None
    assert workload.doubt is not None
    assert "could not be read" in workload.doubt.detail


@pytest.mark.parametrize(
    ("objects", "n_reads"),
    [([], 24), ([claim("Bound", volume_name="disk"), DISK], 2)],
    ids=["open", "bound"],
)
async def test_a_claim_is_read_again_sooner_while_it_has_no_volume(
    objects: list[Any], n_reads: int
) -> None:
    assert await Scene(*objects).n_reads_in(120) == n_reads
