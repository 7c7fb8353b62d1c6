"""Conditions of pending pods: when, how often, and in which order they are written."""

from collections.abc import Iterable
from typing import Any
from unittest.mock import create_autospec

import pytest
from msgspec.structs import replace

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.api.reasons import HELP, Reason, Refused
from extender.cycle.reports.placed import (
    CHANGE_S,
    RENEW_S,
    Note,
    PlacedConditions,
    PlacedQueue,
    placed_patch,
)
from extender.cycle.reports.wait_events import RENEW_S as EVENTS_RENEW_S
from extender.cycle.reports.wait_events import (
    SETTLE_S,
    WaitEvents,
    WaitNote,
    readable,
    wait_message,
)
from extender.kube.client import Client
from extender.kube.errors import KubeError, RequestRefused, Unavailable
from extender.policy.placement.explain import NEVER
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from extender.state.snapshot import Snapshot
from tests.support.builders import pod

LACKS = Refused(Reason.INSUFFICIENT_GPU, "team-a/a: needs 1 GPU; all 4 GPUs are taken")


class Story:
    """A cluster, and what is told of it look by look."""

    def __init__(self, *objects: Any) -> None:
        self.state = ClusterState()
        self.queue = PlacedQueue(self.state)
        self.events = WaitEvents(self.state)
        self.change(*objects)

    def change(self, *objects: Any) -> None:
        for obj in objects:
            self.state.apply(Upserted(obj))

    @property
    def snapshot(self) -> Snapshot:
        return self.state.snapshot(2_000)

    def told(self, now: float, waits: dict[str, Refused], at_most: int = 50) -> list[Note]:
        """What pods are told in the look at `now`, in which every workload counts as changed."""
        keys = list(self.state.workloads())
        return self.queue.due(self.snapshot, Plan(waits=waits), keys, now, at_most)

    def recorded(self, now: float, waits: dict[str, Refused]) -> list[WaitNote]:
        return self.events.due(self.snapshot, Plan(waits=waits), now)


def names_of(notes: Iterable[Note]) -> list[str]:
    return [note.pod.key for note in notes]


# -- the condition ---------------------------------------------------------------------------


def test_a_pod_that_starts_at_once_is_told_nothing() -> None:
    story = Story(pod("a").needs(1000).build())
    assert story.told(0, {"team-a/a": LACKS}) == []
    story.change(pod("a").needs(1000).bound("n1").version(2).build())
    assert story.told(SETTLE_S, {}) == []


def test_a_pod_that_waits_is_told_once_what_it_lacks_and_what_helps() -> None:
    story = Story(pod("a").needs(1000).build())
    waits = {"team-a/a": LACKS}
    story.told(0, waits)
    (note,) = story.told(SETTLE_S, waits)
    assert note.reason is Reason.INSUFFICIENT_GPU
    assert note.text == f"needs 1 GPU; all 4 GPUs are taken. {HELP[Reason.INSUFFICIENT_GPU]}"
    story.change(pod("a").needs(1000).told("InsufficientGpu").version(2).build())
    assert story.told(SETTLE_S + 1, waits) == []


def test_a_new_leader_writes_nothing_that_stands_there_already() -> None:
    story = Story(pod("a").needs(1000).told("InsufficientGpu").build())
    waits = {"team-a/a": LACKS}
    assert story.told(0, waits) == story.told(SETTLE_S, waits) == []


def test_a_write_that_failed_is_tried_again() -> None:
    story = Story(pod("a").needs(1000).build())
    waits = {"team-a/a": LACKS}
    story.told(0, waits)
    notes = story.told(SETTLE_S, waits)
    for note in notes:
        story.queue.put_back(note)
    plan = Plan(waits=waits)
    assert story.queue.due(story.snapshot, plan, [], SETTLE_S + 1, 50) == notes
    assert story.queue.due(story.snapshot, plan, [], SETTLE_S + 2, 50) == []


def test_a_write_that_failed_is_tried_again_for_a_pod_that_no_longer_waits() -> None:
    story = Story(pod("a").needs(1000).told("InsufficientGpu").version(1).bound("n1").build())
    (note,) = story.told(0, {})
    story.queue.put_back(note)
    assert story.queue.due(story.snapshot, Plan(), [], 1, 50) == [note]


@pytest.mark.parametrize(("error", "n_writes"), [(RequestRefused, 1), (Unavailable, 10)])
async def test_a_condition_without_an_answer_is_written_again_and_a_refused_one_is_not(
    error: type[KubeError], n_writes: int
) -> None:
    story = Story(pod("a").needs(1000).build())
    client = create_autospec(Client, instance=True)
    client.strategic_patch.side_effect = error("no")
    placed, plan = PlacedConditions(client, story.state), Plan(waits={"team-a/a": LACKS})
    await placed.write(story.snapshot, plan, ["team-a/a"], 0)
    for second in range(10):
        await placed.write(story.snapshot, plan, [], SETTLE_S + second)
    assert client.strategic_patch.call_count == n_writes


def test_another_reason_is_told_but_not_every_few_seconds() -> None:
    story = Story(pod("a").needs(1000).build())
    story.told(0, {"team-a/a": LACKS})
    story.told(SETTLE_S, {"team-a/a": LACKS})
    story.change(pod("a").needs(1000).told("InsufficientGpu").version(2).build())
    other = {"team-a/a": Refused(Reason.OVER_LIMIT)}
    assert story.told(SETTLE_S + 1, other) == []
    (note,) = story.told(SETTLE_S + CHANGE_S, other)
    assert note.reason is Reason.OVER_LIMIT


def test_figures_that_changed_are_reported_after_ten_minutes() -> None:
    story = Story(pod("a").needs(1000).build())
    story.told(0, {"team-a/a": LACKS})
    story.told(SETTLE_S, {"team-a/a": LACKS})
    story.change(pod("a").needs(1000).told("InsufficientGpu").version(2).build())
    newer = {"team-a/a": Refused(Reason.INSUFFICIENT_GPU, "team-a/a: needs 1 GPU; 1 is sick")}
    assert story.told(SETTLE_S + RENEW_S - 1, newer) == []
    assert len(story.told(SETTLE_S + RENEW_S, newer)) == 1
    assert story.told(SETTLE_S + 2 * RENEW_S, newer) == []


def test_every_pod_of_a_gang_is_told() -> None:
    story = Story(*(pod(f"p{ix}").needs(1000).gang("g", 3).build() for ix in range(3)))
    waits = {"team-a/g": LACKS}
    story.told(0, waits)
    assert sorted(names_of(story.told(SETTLE_S, waits))) == ["team-a/p0", "team-a/p1", "team-a/p2"]


def test_a_pod_that_was_told_to_wait_is_told_when_it_is_bound() -> None:
    story = Story(pod("a").needs(1000).bound("n1").told("InsufficientGpu").build())
    (note,) = story.told(0, {})
    patch = placed_patch(note, is_first=False)
    (condition,) = patch["status"]["conditions"]
    assert patch["metadata"] == {"uid": "uid-a"}
    assert (condition["status"], condition["message"]) == ("True", "bound to node n1")


def test_a_tenant_with_many_pods_does_not_delay_another() -> None:
    many = [pod(f"p{ix}").uid(f"u{ix}").needs(1000).build() for ix in range(20)]
    story = Story(*many, pod("b").of("team-b").needs(1000).build())
    waits = dict.fromkeys(story.state.workloads(), LACKS)
    story.told(0, waits)
    assert "team-b/b" in names_of(story.told(SETTLE_S, waits, at_most=2))


def test_a_reason_keeps_the_time_since_when_the_pod_waits() -> None:
    story = Story(pod("a").needs(1000).build())
    (view,) = story.state.workloads()["team-a/a"].pods
    patch = placed_patch(Note(view, Reason.OVER_LIMIT, "why"), is_first=False)
    assert "lastTransitionTime" not in patch["status"]["conditions"][0]


# -- events ----------------------------------------------------------------------------------


def test_single_pods_of_one_owner_share_an_event() -> None:
    story = Story(*(pod(f"p{ix}").needs(1000).build() for ix in range(20)))
    waits = dict.fromkeys(story.state.workloads(), LACKS)
    assert story.recorded(0, waits) == []
    (note,) = story.recorded(SETTLE_S, waits)
    assert note.owner_note.startswith("20 pods wait: ")
    assert story.recorded(SETTLE_S + 1, waits) == []


def test_an_event_is_renewed_before_the_api_server_drops_it() -> None:
    story = Story(pod("a").needs(1000).build())
    waits = {"team-a/a": LACKS}
    story.recorded(0, waits)
    story.recorded(SETTLE_S, waits)
    assert story.recorded(SETTLE_S + EVENTS_RENEW_S - 1, waits) == []
    (note,) = story.recorded(SETTLE_S + EVENTS_RENEW_S, waits)
    assert EVENTS_RENEW_S < 3600
    assert "InsufficientGpu" not in note.note, "the reason stands in a field of its own"


def test_a_pod_without_a_controller_that_is_created_again_gets_an_event_again() -> None:
    first, waits = pod("a").needs(1000).bare().build(), {"team-a/a": LACKS}
    story = Story(first)
    story.recorded(0, waits)
    assert len(story.recorded(SETTLE_S, waits)) == 1
    story.state.apply(Removed(Pod, first.metadata.uid, "team-a", "a"))
    story.recorded(SETTLE_S + 1, {})
    story.change(replace(first, metadata=replace(first.metadata, uid="second")))
    story.recorded(SETTLE_S + 2, waits)
    (note,) = story.recorded(2 * SETTLE_S + 2, waits)
    assert note.pod.uid == "second"


def test_work_that_there_was_no_time_to_look_at_gets_no_event() -> None:
    story = Story(pod("a").needs(1000).build())
    plan = Plan(waits={"team-a/a": LACKS}, cut=frozenset({"team-a/a"}))
    assert story.events.due(story.snapshot, plan, 0) == []
    assert story.events.due(story.snapshot, plan, SETTLE_S) == []
    (note,) = story.recorded(SETTLE_S + 1, {"team-a/a": LACKS})
    assert note.pod.key == "team-a/a"


def test_pods_that_come_and_start_do_not_bring_an_event_each() -> None:
    story = Story(pod("a").needs(1000).build())
    for second in range(0, 600, 20):
        story.recorded(second, {"team-a/a": LACKS})
        told = story.recorded(second + SETTLE_S, {"team-a/a": LACKS})
        assert len(told) == (1 if second == 0 else 0)
        story.recorded(second + SETTLE_S + 1, {})


def test_every_reason_to_wait_says_what_helps() -> None:
    waiting = list(Reason)[: list(Reason).index(Reason.RESERVED)]
    assert set(waiting) <= HELP.keys()


def test_words_are_those_of_people() -> None:
    for detail, said in (
        (
            "needs 65536 MiB of memory; a node has at most 32000 MiB of memory (n0)",
            "needs 64 GiB of memory; a node has at most 31.2 GiB of memory (n0)",
        ),
        (
            "needs 9000 MiB of GPU memory on one GPU; largest free is 8999 MiB (n0/gpu0)",
            "needs 8.8 GiB of GPU memory on one GPU; largest free is 8.7 GiB (n0/gpu0)",
        ),
        ("needs 500 MiB of memory", "needs 500 MiB of memory"),
        ("needs 2 CPU and 2048 MiB of memory", "needs 2 CPU and 2 GiB of memory"),
    ):
        assert readable(detail) == said


def test_work_that_can_never_start_is_not_told_to_wait() -> None:
    story = Story(pod("a").needs(1000).build())
    never = f"team-a/a: needs 16 GPUs on one node; the largest node has 8 (n0); {NEVER} default"
    text = wait_message(
        story.state.workloads()["team-a/a"], Refused(Reason.INSUFFICIENT_GPU, never)
    )
    assert text.startswith("needs 16 GPUs on one node")
    assert text.endswith("pool default. Ask for less, or for another node pool.")
