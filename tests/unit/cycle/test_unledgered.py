"""The reaction to pods of projects that hold GPUs without a row."""

import asyncio
from typing import Any, Literal

import pytest
from msgspec import structs

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.api.reasons import Reason
from extender.cycle import metrics
from extender.cycle.evictions.evictor import AT_ONCE
from extender.cycle.evictions.unledgered import (
    EVICTIONS_PER_LOOK,
    LOOK_PERIOD_S,
    RETRY_S,
    UnledgeredKeeper,
)
from extender.cycle.pods.writer import PodWriter
from extender.kube.client import Evicted, EvictionRefused
from extender.kube.recorder import ObjectRef
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, node, pod, pool, project, row, whole
from tests.support.metrics import value_of
from tests.unit.state.test_device_cards import allocated, device_class, published

pytestmark = pytest.mark.looptime


class Stage:
    """Pods of team-a, and of a namespace without a project, on n1 of the default pool."""

    def __init__(self, does: Literal["Report", "Evict"] = "Report") -> None:
        self.state = ClusterState()
        self.evicted: list[str] = []
        self.deleted: list[str] = []
        self.graces: list[int | None] = []
        self.refused: set[str] = set()
        self.told: list[tuple[str, Reason, str]] = []
        self.answers_after_s = 0.0
        self.n_in_flight = self.most_in_flight = 0
        built = pool("default").build()
        built.spec.unledgered_pods = does
        for obj in (
            project("team-a").build(),
            built,
            node("n1").gpus(8).build(),
            gpu_node("n1", 8).build(),
        ):
            self.state.apply(Upserted(obj))
        writer = PodWriter(self, self.state)  # type: ignore[arg-type]
        self.keeper = UnledgeredKeeper(self.state, writer, self)  # type: ignore[arg-type]

    async def evict(
        self, _namespace: str, name: str, *, grace_s: int | None = None, **_: Any
    ) -> Any:
        self.evicted.append(name)
        self.graces.append(grace_s)
        self.n_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.n_in_flight)
        await asyncio.sleep(self.answers_after_s)
        self.n_in_flight -= 1
        return EvictionRefused(0.0, "no") if name in self.refused else Evicted()

    async def strategic_patch(self, *_: Any) -> None:
        """The condition of a pod that is deleted."""

    async def delete(self, _resource: object, name: str, *_: object, **__: object) -> None:
        self.deleted.append(name)

    def record(self, about: ObjectRef, reason: Reason, note: str, *_: object) -> None:
        self.told.append((about.name, reason, note))

    def add(self, *built: Any) -> None:
        for each in built:
            self.state.apply(Upserted(each.unledgered().bound("n1").build()))

    async def look(self) -> None:
        await asyncio.sleep(LOOK_PERIOD_S)
        self.keeper.keep()
        # The evictions that get an answer at once.
        for _ in range(20):
            await asyncio.sleep(0)


async def test_each_pod_of_a_project_is_told_of_once_and_left_alone() -> None:
    stage = Stage()
    stage.add(pod("a").needs(1000, devices=2), pod("s").of("elsewhere").needs(1000))
    await stage.look()
    await stage.look()
    ((name, reason, note),) = stage.told
    assert (name, reason) == ("a", Reason.UNLEDGERED)
    assert "2 on node n1; it keeps them" in note
    assert stage.evicted == []
    counted = [value_of(metrics.FOREIGN_GPUS.labels(said)) for said in ("true", "false")]
    assert counted == [2, 1]
    await stage.keeper.close()
    assert value_of(metrics.FOREIGN_GPUS.labels("true")) == 0


async def test_a_pool_that_says_so_has_them_evicted() -> None:
    stage = Stage("Evict")
    stage.add(
        pod("a").needs(1000),
        pod("s").of("elsewhere").needs(1000),
        pod("m").needs(1000).mirror(),
        pod("t").needs(1000).terminating(),
    )
    await stage.look()
    assert stage.evicted == ["a"]
    assert {name for name, _, note in stage.told if "it is evicted" in note} == {"a", "t"}


async def test_its_grace_is_bounded_as_that_of_any_evicted_pod() -> None:
    stage = Stage("Evict")
    stage.add(pod("a").needs(1000).grace(86_400), pod("b").needs(1000).grace(10))
    await stage.look()
    stated = project("team-a").build()
    stated.spec.max_termination_grace_seconds = 60
    stage.state.apply(Upserted(stated))
    stage.add(pod("c").needs(1000).grace(86_400))
    await stage.look()
    assert (stage.evicted, stage.graces) == (["a", "b", "c"], [300, None, 60])


async def test_a_pod_that_a_budget_protects_is_tried_again_after_the_others() -> None:
    stage = Stage("Evict")
    names = [f"p{at:02}" for at in range(EVICTIONS_PER_LOOK + 4)]
    stage.refused = set(names[:EVICTIONS_PER_LOOK])
    stage.add(*(pod(name).needs(1000) for name in names))
    await stage.look()
    await stage.look()
    assert stage.evicted == names
    for name in names[EVICTIONS_PER_LOOK:]:
        stage.state.apply(Removed(Pod, f"uid-{name}", "team-a", name))
    await asyncio.sleep(RETRY_S)
    await stage.look()
    assert stage.evicted == names + names[:EVICTIONS_PER_LOOK]


async def test_the_cycle_does_not_wait_for_evictions_and_they_are_not_begun_twice() -> None:
    stage = Stage("Evict")
    stage.answers_after_s = 2 * RETRY_S
    stage.add(*(pod(f"p{at:02}").needs(1000) for at in range(EVICTIONS_PER_LOOK)))
    started_s = asyncio.get_running_loop().time()
    await stage.look()
    assert len(stage.evicted) == AT_ONCE
    assert asyncio.get_running_loop().time() - started_s == pytest.approx(LOOK_PERIOD_S)
    await asyncio.sleep(RETRY_S)
    stage.add(pod("late").needs(1000))
    await stage.look()
    assert len(stage.evicted) == AT_ONCE
    assert [name for name, *_ in stage.told].count("late") == 1
    await asyncio.sleep(3 * RETRY_S)
    assert len(set(stage.evicted)) == len(stage.evicted) == EVICTIONS_PER_LOOK
    assert stage.most_in_flight == AT_ONCE


async def test_evictions_under_way_end_with_the_leadership() -> None:
    stage = Stage("Evict")
    stage.answers_after_s = 10.0
    stage.add(*(pod(f"p{at:02}").needs(1000) for at in range(EVICTIONS_PER_LOOK)))
    await stage.look()
    await stage.keeper.close()
    await asyncio.sleep(60.0)
    assert len(stage.evicted) == AT_ONCE


async def test_pod_whose_claims_hold_more_cards_than_its_row_is_evicted_in_any_pool() -> None:
    stage = Stage()
    ours = pod("a").claims(1).bound("n1").build()
    for obj in (
        device_class(),
        published("gpu-0", "gpu-1"),
        gpu_node("n1", 2).version(2).holds(row(ours, whole(0), "bound")).build(),
        ours,
        allocated("its-claim", "gpu-0", to="a"),
    ):
        stage.state.apply(Upserted(obj))
    await stage.look()
    assert stage.told == []
    stage.state.apply(Upserted(allocated("its-claim", "gpu-0", "gpu-1", to="a")))
    await stage.look()
    ((name, _, note),) = stage.told
    # Whatever disruption budgets say.
    assert (name, stage.deleted) == ("a", ["a"])
    assert "1 on node n1; it is evicted" in note
    assert "leave its claims and their templates as they are" in note


def stage_of_a_thief(**more: Any) -> tuple[Stage, Any]:
    """A pod whose claims asked for no card when it was admitted, bound without a row, and a claim
    of it that holds two."""
    stage = Stage()
    built = pod("thief").project("team-a").claims(0).bound("n1")
    thief = built.build()
    for obj in (
        device_class(),
        published("gpu-0", "gpu-1"),
        gpu_node("n1", 2).version(2).build(),
        structs.replace(thief, **more) if more else thief,
        allocated("its-claim", "gpu-0", "gpu-1", to="thief"),
    ):
        stage.state.apply(Upserted(obj))
    stage.state.validate_state()
    return stage, thief


async def test_pod_without_a_row_whose_claims_came_to_hold_cards_is_evicted() -> None:
    stage, _ = stage_of_a_thief()
    await stage.look()
    ((name, _, note),) = stage.told
    assert (name, stage.deleted) == ("thief", ["thief"])
    assert "2 on node n1; it is evicted" in note
    assert "leave its claims and their templates as they are" in note


async def test_pod_that_was_not_admitted_with_its_claims_keeps_their_cards() -> None:
    """It was there before its project."""
    was_there = pod("thief").claims(0).bound("n1").build().metadata
    was_there = structs.replace(was_there, labels={})
    stage, _ = stage_of_a_thief(metadata=was_there)
    await stage.look()
    assert (stage.told, stage.deleted) == ([], [])
