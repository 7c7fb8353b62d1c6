import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from extender.api.reasons import Reason
from extender.kube.client import Client
from extender.kube.recorder import EventRates, EventRecorder, ObjectRef
from extender.kube.resources import PODS, PROJECTS
from tests.integration.kube.mirror import counted
from tests.integration.kube.objects import pod
from tests.support.controlplane.handles import Api
from tests.support.faultproxy import FaultProxy

PATIENCE_S = 90.0
INSTANCE = "ballast-control-0"


@asynccontextmanager
async def recording(client: Client, pace: EventRates | None = None) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, INSTANCE, pace)
    task = asyncio.ensure_future(recorder.run())
    try:
        yield recorder
    finally:
        assert not task.done(), "the recorder died"
        task.cancel()
        await asyncio.wait([task])


async def events(client: Client, namespace: str, n: int) -> list[dict[str, Any]]:
    """The namespace's Events of the recorder, once there are `n`, oldest first; kube-apiserver
    itself writes some about the Service `kubernetes`."""
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            listed: list[dict[str, Any]] = json.loads(await client.get_raw(path))["items"]
            items = [item for item in listed if item.get("reportingInstance") == INSTANCE]
            if len(items) >= n:
                return sorted(items, key=lambda item: item["eventTime"])


def some_pod(namespace: str, name: str = "p") -> ObjectRef:
    return ObjectRef("v1", "Pod", name, namespace, f"uid-{name}")


async def test_an_event_says_who_what_and_why(api: Api, client: Client) -> None:
    made = await client.create(PODS, pod("victim"), api.namespace)
    async with recording(client) as recorder:
        about = ObjectRef("v1", "Pod", "victim", api.namespace, made.metadata.uid)
        recorder.record(about, Reason.RECLAIMED, "makes room", "Warning", some_pod(api.namespace))
        (event,) = await events(client, api.namespace, 1)
    assert event["regarding"]["name"] == "victim"
    assert event["regarding"]["uid"] == made.metadata.uid
    assert event["related"]["name"] == "p"
    assert (event["reason"], event["note"], event["type"]) == ("Reclaimed", "makes room", "Warning")
    assert event["reportingController"] == "ballast-controller"
    assert event["reportingInstance"] == INSTANCE
    assert "Reclaimed" in api.kubectl("describe", "pod", "victim", "-n", api.namespace)


async def test_repeats_while_waiting_are_one_event_with_a_count(api: Api, client: Client) -> None:
    async with recording(client) as recorder:
        for _ in range(5):
            recorder.record(some_pod(api.namespace), Reason.INSUFFICIENT_GPU, "none free")
        (event,) = await events(client, api.namespace, 1)
    assert event["series"]["count"] == 5


async def test_a_later_repeat_raises_the_count_of_the_event(api: Api, client: Client) -> None:
    n_before = counted("events_written", result="ok")
    async with recording(client, EventRates(series_s=0)) as recorder:
        for n_written, note in enumerate(("none free", "still none"), start=1):
            recorder.record(some_pod(api.namespace), Reason.INSUFFICIENT_GPU, note)
            async with asyncio.timeout(PATIENCE_S):
                while counted("events_written", result="ok") < n_before + n_written:
                    await client.get_raw("/readyz")
        (event,) = await events(client, api.namespace, 1)
    assert event["series"]["count"] == 2
    assert event["note"] == "none free"


async def test_another_reason_is_another_event(api: Api, client: Client) -> None:
    async with recording(client) as recorder:
        recorder.record(some_pod(api.namespace), Reason.RESERVED, "one")
        recorder.record(some_pod(api.namespace), Reason.SCHEDULED, "two")
        told = await events(client, api.namespace, 2)
    assert [event["note"] for event in told] == ["one", "two"]


async def test_an_event_about_a_cluster_scoped_object_is_written(client: Client) -> None:
    ref = ObjectRef(PROJECTS.api_version, "GpuProject", "team-a", uid="u")
    async with recording(client) as recorder:
        recorder.record(ref, Reason.OVER_LIMIT, "x" * 5000)
        (event,) = await events(client, "default", 1)
    assert event["regarding"]["name"] == "team-a"
    assert len(event["note"]) == 1024


async def test_more_events_than_fit_are_dropped_and_counted(client: Client) -> None:
    recorder = EventRecorder(client, "i", EventRates(max_queued=3))
    n_dropped = counted("events_dropped")
    for i in range(5):
        recorder.record(some_pod("n", f"p-{i}"), Reason.RESERVED, "x")
    assert counted("events_dropped") == n_dropped + 2


async def test_an_api_server_that_is_away_costs_events_and_nothing_else(
    api: Api, client: Client, tmp_path: Path
) -> None:
    async with (
        FaultProxy(api.url) as proxy,
        await api.client(proxy.kubeconfig(api.kubeconfig, tmp_path)) as cut_off,
        recording(cut_off) as recorder,
    ):
        proxy.refuse()
        n_failed = counted("events_written", result="Unavailable")
        recorder.record(some_pod(api.namespace), Reason.RESERVED, "lost")
        async with asyncio.timeout(PATIENCE_S):
            while counted("events_written", result="Unavailable") == n_failed:
                await client.get_raw("/readyz")
        proxy.restore()
        recorder.record(some_pod(api.namespace), Reason.SCHEDULED, "told")
        (event,) = await events(client, api.namespace, 1)
    assert event["note"] == "told"


async def test_events_are_written_no_faster_than_the_pace(api: Api, client: Client) -> None:
    clock = asyncio.get_running_loop().time
    async with recording(client, EventRates(per_s=10, burst=2)) as recorder:
        started = clock()
        for i in range(7):
            recorder.record(some_pod(api.namespace, f"p-{i}"), Reason.RESERVED, "x")
        await events(client, api.namespace, 7)
        assert clock() - started >= 0.5
