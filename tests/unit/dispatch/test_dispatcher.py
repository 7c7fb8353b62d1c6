"""The order in which Workloads are queried."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import msgspec
import pytest

from extender.api.events import Upserted
from extender.api.objects import Condition, ObjectMeta
from extender.dispatch.clusters import WorkerClusters
from extender.dispatch.dispatcher import Dispatcher
from extender.dispatch.kinds import (
    MULTIKUEUE,
    AdmissionCheck,
    CheckParameters,
    CheckSpec,
    CheckState,
    ConfigSpec,
    MultiKueueConfig,
    Workload,
    WorkloadPriority,
    WorkloadStatus,
)
from extender.dispatch.ranking import Heard
from extender.dispatch.state import DispatchState
from extender.kube.client import Client

pytestmark = pytest.mark.looptime


def waiting(name: str, priority: int = 0) -> Workload:
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version="1")
    reserved = Condition(type="QuotaReserved", status="True")
    checks = [CheckState("check", "Pending")]
    status = WorkloadStatus(conditions=[reserved], admission_checks=checks)
    return Workload(metadata=meta, spec=WorkloadPriority(priority), status=status)


class Scene:
    """The cluster `a` takes 3 seconds to say that it has no answer. While it is asked about the
    first Workload, an urgent one comes."""

    def __init__(self, *workloads: Workload) -> None:
        self.changed = asyncio.Event()
        self.state = DispatchState(self.changed.set)
        self.asked: list[str] = []
        parameters = CheckParameters("MultiKueueConfig", "config")
        spec = CheckSpec(MULTIKUEUE, parameters)
        self.put(AdmissionCheck(ObjectMeta(name="check"), spec))
        self.put(MultiKueueConfig(ObjectMeta(name="config"), ConfigSpec(["a"])))
        self.workloads: dict[str, Workload] = {}
        for each in workloads:
            self.put(each)
        client: Any = create_autospec(Client, instance=True)
        client.get_raw.side_effect = self._read
        clusters: Any = create_autospec(WorkerClusters, instance=True)
        clusters.ask.side_effect = self._ask
        self.dispatcher = Dispatcher(client, self.state, clusters, 300.0)

    def put(self, obj: Any) -> None:
        if isinstance(obj, Workload):
            self.workloads[obj.metadata.name] = obj
        self.state.apply(Upserted(obj))

    async def _read(self, url: str) -> bytes:
        return msgspec.json.encode(self.workloads[url.rpartition("/")[2]])

    async def _ask(self, _name: str, _cluster: object, wanted: list[Any]) -> Heard:
        if not self.asked:
            self.put(waiting("urgent", 100))
        self.asked.append(wanted[-1].name)
        await asyncio.sleep(3.0)
        return Heard("a", silence="it is slow")


async def test_urgent_work_does_not_wait_for_all_that_came_before_it() -> None:
    scene = Scene(*(waiting(f"w{ix}") for ix in range(4)))
    running = asyncio.create_task(scene.dispatcher.run(scene.changed))
    await asyncio.sleep(16.5)
    running.cancel()
    assert scene.asked[:5] == ["w0", "urgent", "w1", "w2", "w3"]
