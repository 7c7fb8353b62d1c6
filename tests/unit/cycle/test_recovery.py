"""Recovery: a row of an unbound pod is freed only after a patch of the pod succeeded."""

import asyncio
import time
from typing import Any
from unittest.mock import create_autospec

import pytest

from extender.api import names
from extender.api.events import Synced, Upserted
from extender.api.kinds import Row
from extender.api.objects import Condition, Node, Pod
from extender.cycle.pods.writer import PodWriter
from extender.cycle.recovery.repair import ABSENT_AFTER_S, MARK_AFTER_S, Recovery, Repairs
from extender.kube.client import Client
from extender.kube.errors import (
    Conflict,
    NotFound,
    RequestRefused,
    Unavailable,
    Undecodable,
    WebhookAway,
)
from extender.kube.recorder import EventRecorder
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, node, pod, project, row, whole

pytestmark = pytest.mark.looptime

BIND_TIMEOUT_S = 30.0


class Ward:
    """A model, and an API server that answers every patch as `answer` says."""

    def __init__(self, *objects: Any) -> None:
        self.state = ClusterState()
        self.pods = {each.metadata.name: each for each in objects if isinstance(each, Pod)}
        for each in (project("team-a").build(), *objects):
            self.state.apply(Upserted(each))
        for kind in (Pod, Node):
            self.state.apply(Synced(kind))
        self.patched: list[str] = []
        self.error: Exception | None = None
        self.client: Any = create_autospec(Client, instance=True)
        self.client.strategic_patch.side_effect = self._patch
        self.client.get.side_effect = NotFound("no such pod")
        recorder = create_autospec(EventRecorder, instance=True)
        self.writer = writer = PodWriter(self.client, self.state)
        self.in_release: set[str] = set()
        self.recovery = Recovery(self.state, writer, recorder, BIND_TIMEOUT_S, self.in_release)

    async def _patch(self, _resource: object, name: str, *_: object) -> Pod:
        self.patched.append(name)
        if self.error:
            raise self.error
        return self.pods[name]

    async def pass_twice(self, seconds: float = ABSENT_AFTER_S + 1) -> Repairs:
        """The repairs of the second of two passes, so much later."""
        await self.recovery.plan()
        await asyncio.sleep(seconds)
        return await self.recovery.plan()


def freed(repairs: Repairs) -> list[tuple[str, str]]:
    """Node and pod of each row that is freed."""
    rows: dict[str, list[Row]] = repairs.frees
    return sorted((at, each.name) for at, listed in rows.items() for each in listed)


def released(repairs: Repairs) -> list[list[str]]:
    """The pods that may go, workload by workload."""
    return [[each.pod.name for each in releases] for _, releases in repairs.releases]


def superseded() -> Ward:
    """Pod `a` has a row of plan 1 on n1 and a newer one on n2."""
    planned = pod("a").needs(1000).build()
    return Ward(
        planned,
        gpu_node("n1", 1).holds(row(planned, whole(0), epoch=1)).build(),
        gpu_node("n2", 1).holds(row(planned, whole(0), epoch=2)).build(),
    )


async def test_a_superseded_row_is_freed_after_its_pod_was_touched() -> None:
    ward = superseded()
    assert freed(await ward.pass_twice()) == [("n1", "a")]
    assert ward.patched == ["a"]


async def test_a_superseded_row_stays_while_its_pod_cannot_be_touched() -> None:
    ward = superseded()
    ward.error = Conflict("the pod changed")
    assert freed(await ward.pass_twice()) == []
    assert ward.patched == ["a"]


async def test_a_plan_that_cannot_be_taken_off_its_pod_is_tried_again_after_a_while() -> None:
    ward = Ward(pod("a").needs(1000).released("n1").build())
    ward.error = Unavailable("away")
    for _ in range(10):
        await ward.recovery.plan()
        await asyncio.sleep(ABSENT_AFTER_S / 2)
    assert len(ward.patched) == 4


async def test_a_lost_row_of_a_pod_with_instances_is_restored() -> None:
    mig = {"nvidia.com/mig-1g.10gb": 2}
    runs = pod("a").instances("nvidia.com/mig-1g.10gb", 2).released("n1", 3).bound("n1").build()
    ward = Ward(runs, gpu_node("n1").build())
    (restored,) = (await ward.recovery.plan()).restores["n1"]
    assert (restored.uid, restored.project, restored.counted) == ("uid-a", "team-a", mig)
    assert restored.state == "bound"


async def test_a_lost_row_is_restored_once_its_node_has_a_ledger_again() -> None:
    ward = Ward(pod("a").needs(1000).bound("n1").build())
    assert (await ward.recovery.plan()).restores == {}
    ward.state.apply(Upserted(gpu_node("n1", 1).build()))
    (restored,) = (await ward.recovery.plan()).restores["n1"]
    assert (restored.uid, restored.state) == ("uid-a", "bound")


async def test_instances_that_another_scheduler_gave_are_not_taken_into_the_ledger() -> None:
    planned = pod("a").instances("nvidia.com/mig-1g.10gb", 2).released("n2", 3).bound("n1")
    ward = Ward(planned.build(), gpu_node("n1").build())
    assert (await ward.recovery.plan()).restores == {}


@pytest.mark.parametrize("is_gated", [True, False])
async def test_a_row_that_another_leader_revoked_is_freed_and_its_pod_not_released(
    is_gated: bool,
) -> None:
    """That leader may still write: it would free the row of a pod that runs."""
    waits = pod("a").needs(1000) if is_gated else pod("a").needs(1000).direct()
    held = row(waits.build(), whole(0), epoch=1)
    revoked = waits.notes({names.ANNOTATION_REVOKED: held.revocation_on("n1")}).build()
    ward = Ward(revoked, node("n1").gpus(1).build(), gpu_node("n1", 1).holds(held).build())
    repairs = await ward.recovery.plan()
    assert freed(repairs) == [("n1", "a")]
    assert released(repairs) == []
    assert ward.patched == []
    ward.state.validate_state()


async def test_a_row_that_a_plan_names_is_in_use_whatever_is_revoked() -> None:
    """A release takes the revocation off: what names both was not written by a leader."""
    waits = pod("a").needs(1000).released("n1", 1)
    held = row(waits.build(), whole(0), epoch=1)
    forged = waits.notes({names.ANNOTATION_REVOKED: held.revocation_on("n1")}).build()
    ward = Ward(forged, node("n1").gpus(1).build(), gpu_node("n1", 1).holds(held).build())
    assert freed(await ward.recovery.plan()) == []
    ward.state.validate_state()


async def test_a_row_of_a_later_plan_than_the_one_that_was_revoked_stays() -> None:
    revoked = pod("a").needs(1000).notes({names.ANNOTATION_REVOKED: "n1 1 0"}).build()
    held = row(revoked, whole(0), epoch=2)
    ward = Ward(revoked, node("n1").gpus(1).build(), gpu_node("n1", 1).holds(held).build())
    repairs = await ward.recovery.plan()
    assert freed(repairs) == []
    assert released(repairs) == [["a"]]


def half_a_gang() -> Ward:
    """Of a gang of two only `a` has its row."""
    members = [pod(name).needs(1000).gang("g", 2).build() for name in ("a", "b")]
    ledger = gpu_node("n1", 2).holds(row(members[0], whole(0), epoch=1)).build()
    return Ward(*members, node("n1").gpus(2).build(), ledger)


async def test_rows_of_half_a_gang_are_freed_after_their_pods_were_touched() -> None:
    ward = half_a_gang()
    assert freed(await ward.recovery.plan()) == [("n1", "a")]
    assert ward.patched == ["a"]


async def test_rows_of_half_a_gang_stay_while_their_pods_cannot_be_touched() -> None:
    ward = half_a_gang()
    ward.error = Conflict("the pod changed")
    assert freed(await ward.recovery.plan()) == []


async def test_a_row_without_a_pod_is_freed_after_a_live_read_and_not_at_once() -> None:
    ghost = pod("ghost").needs(1000).build()
    ward = Ward(gpu_node("n1", 1).holds(row(ghost, whole(0))).build())
    assert freed(await ward.recovery.plan()) == []
    ward.client.get.assert_not_called()
    await asyncio.sleep(ABSENT_AFTER_S + 1)
    assert freed(await ward.recovery.plan()) == [("n1", "ghost")]
    assert ward.client.get.call_count == 1


async def test_a_pod_that_cannot_be_read_keeps_its_row_and_ends_no_pass() -> None:
    """As a pod that does not decode, of which the model knows nothing."""
    poison = pod("poison").needs(1000).build()
    ward = Ward(gpu_node("n1", 1).holds(row(poison, whole(0))).build())
    ward.client.get.side_effect = Undecodable("pods: Expected `str`, got `int`")
    assert freed(await ward.pass_twice()) == []
    assert ward.client.get.call_count == 1


async def test_rows_that_stay_unsure_do_not_keep_others_from_being_looked_up() -> None:
    pods = [pod(f"p{at:02}").needs(1000).build() for at in range(40)]
    rows = [row(each, whole(at)) for at, each in enumerate(pods)]
    ward = Ward(gpu_node("n1", 40).holds(*rows).build())

    async def read(_resource: object, name: str, _namespace: str) -> Pod:
        if name < "p32":
            raise Unavailable("no answer")
        raise NotFound("no such pod")

    ward.client.get.side_effect = read
    assert freed(await ward.pass_twice()) == []
    assert freed(await ward.recovery.plan()) == [("n1", f"p{at}") for at in range(32, 40)]


async def test_a_gang_of_which_one_pod_was_refused_loses_its_other_places_too() -> None:
    first, second = (
        pod(name).needs(1000).gang("g", 2).released("n1", 1).build() for name in ("a", "b")
    )
    first.status.conditions = [
        Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no ports")
    ]
    rows = [row(each, whole(at), epoch=1) for at, each in enumerate((first, second))]
    ward = Ward(first, second, node("n1").gpus(2).build(), gpu_node("n1", 2).holds(*rows).build())
    assert freed(await ward.pass_twice(BIND_TIMEOUT_S + 15)) == [("n1", "a"), ("n1", "b")]
    assert sorted(ward.patched) == ["a", "b"]


async def test_a_released_pod_whose_node_is_deleted_is_planned_again_at_once() -> None:
    waits = pod("a").needs(1000).released("n1").build()
    ward = Ward(waits, gpu_node("n1", 1).holds(row(waits, whole(0), epoch=1)).build())
    assert freed(await ward.recovery.plan()) == [("n1", "a")]
    (patch,) = (call.args[2] for call in ward.client.strategic_patch.call_args_list)
    assert not patch["metadata"]["annotations"].get(names.ANNOTATION_REFUSED)


async def test_a_restored_row_says_when_it_was_written() -> None:
    bound = pod("a").needs(500).bound("n1").notes({"ballast.dev/cards": "0:500:8000"}).build()
    ward = Ward(node("n1").gpus(1).build(), gpu_node("n1", 1).build(), bound)
    before = int(time.time())
    (restored,) = (await ward.recovery.plan()).restores["n1"]
    assert restored.uid == bound.metadata.uid
    assert restored.reserved_at >= before


async def test_only_pods_that_are_not_in_release_already_are_released_again() -> None:
    """A burst holds thousands of them, and each cycle would queue them all anew."""
    pods = [pod(name).needs(1000).build() for name in ("a", "b")]
    rows = [row(each, whole(at), state="reserved", epoch=1) for at, each in enumerate(pods)]
    ward = Ward(*pods, node("n1").gpus(2).build(), gpu_node("n1", 2).holds(*rows).build())
    ward.in_release |= {"uid-a"}
    assert released(await ward.recovery.plan()) == [["b"]]
    ward.in_release.clear()
    assert released(await ward.recovery.plan()) == [["a"], ["b"]]


async def test_many_pods_that_could_not_be_released_do_not_hold_up_the_cycle() -> None:
    """A policy may refuse the patches of a thousand pods, and each takes a second."""
    pods = [pod(f"p{at}").needs(1000).build() for at in range(8)]
    rows = [row(each, whole(at), state="reserved", epoch=1) for at, each in enumerate(pods)]
    ward = Ward(*pods, gpu_node("n1", 8).holds(*rows).build(), node("n1").build())

    async def patch(_resource: object, name: str, *_: object) -> Pod:
        await asyncio.sleep(1.0)
        return ward.pods[name]

    ward.client.strategic_patch.side_effect = patch
    refused = RequestRefused("a policy forbids it")
    ward.writer.denied = {each.metadata.uid: refused for each in pods}
    began = asyncio.get_running_loop().time()
    repairs = await ward.recovery.plan()
    assert len(repairs.frees["n1"]) == 8
    assert asyncio.get_running_loop().time() - began < 2.0


async def test_wait_grows_with_each_refusal_but_not_while_a_webhook_is_away() -> None:
    waits = []
    for error in (WebhookAway("no answer"), RequestRefused("forbidden")):
        waiting = pod("a").needs(1000).build()
        held = row(waiting, whole(0), state="reserved", epoch=1)
        ward = Ward(waiting, gpu_node("n1", 1).holds(held).build(), node("n1").build())
        for _ in range(3):
            ward.writer.denied = {waiting.metadata.uid: error}
            await ward.recovery.plan()
            ward.state.apply(Upserted(gpu_node("n1", 1).holds(held).build()))
        view = ward.state.pod(waiting.metadata.uid)
        assert view is not None
        assert view.denial is not None
        waits.append(view.denial.count)
    assert waits == [1, 3]


def starts_on(*nodes: str) -> Ward:
    """A pod is bound on each node, and its row is not marked yet."""
    objects: list[Any] = []
    for name in nodes:
        runs = pod(f"on-{name}").needs(1000).bound(name).build()
        objects += [node(name).gpus(1).build(), runs]
        objects.append(gpu_node(name, 1).holds(row(runs, whole(0))).build())
    return Ward(*objects)


async def test_a_node_is_written_only_to_mark_rows_once_they_are_old() -> None:
    ward = starts_on("n1", "n2")
    assert list((await ward.pass_twice(MARK_AFTER_S - 1)).overdue) == []
    runs = ward.pods["on-n2"]
    marked = gpu_node("n2", 1).version(2).holds(row(runs, whole(0), "bound")).build()
    ward.state.apply(Upserted(marked))
    await asyncio.sleep(2)
    assert list((await ward.recovery.plan()).overdue) == ["n1"]
    again = pod("later").needs(1000).bound("n2").build()
    ward.state.apply(Upserted(again))
    ward.state.apply(Upserted(gpu_node("n2", 1).version(3).holds(row(again, whole(0))).build()))
    await asyncio.sleep(MARK_AFTER_S / 2)
    assert list((await ward.recovery.plan()).overdue) == ["n1"], "the age of new rows is their own"
