"""Evictions beside the cycle: their order, when they are dropped, and the model meanwhile."""

import asyncio

import pytest
from msgspec import structs
from prometheus_client import REGISTRY

from extender.api.events import Upserted
from extender.api.objects import PodStatus
from extender.api.reasons import Reason
from extender.cycle import metrics
from extender.cycle.evictions.evictor import AT_ONCE
from extender.cycle.evictions.protection import FIRST_S
from extender.policy.plan import Eviction, HeldBack, Move, Placement, Plan
from extender.policy.preemption.lost_work import RESTART_S
from extender.state.snapshot import Snapshot
from tests.support.builders import gpu_node, kept_row, pod, project, whole
from tests.support.metrics import value_of
from tests.unit.cycle.eviction_stage import ApiServer, Stage

pytestmark = pytest.mark.looptime


async def test_a_pod_that_was_deleted_before_its_eviction_is_not_said_to_be_evicted() -> None:
    stage = Stage(2, ApiServer(gone={"v1"}))
    stage.start()
    await asyncio.sleep(5)
    assert "v0" in stage.events.about
    assert "v1" not in stage.events.about


async def test_a_pod_that_is_gone_before_the_answer_counts_for_its_project() -> None:
    labels = {"reason": "Reclaimed", "project": "team-a", "beneficiary": "team-a"}
    name = "ballast_control_evicted_pods_total"
    before = REGISTRY.get_sample_value(name, labels) or 0
    stage = Stage(1, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    stage.drop(stage.victims[0])
    await asyncio.sleep(5)
    assert REGISTRY.get_sample_value(name, labels) == before + 1


async def test_the_controller_of_a_pod_that_is_gone_before_the_answer_is_told_of_it() -> None:
    stage = Stage(1, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    stage.drop(stage.victims[0])
    await asyncio.sleep(5)
    assert stage.events.about[:2] == ["v0", "job"]
    assert all("Job job creates the pod again" in note for note in stage.events.notes[:2])


async def test_a_pod_that_has_ended_before_its_turn_is_not_evicted() -> None:
    """An eviction deletes a pod that has completed as well, and its logs with it."""
    stage = Stage(AT_ONCE + 2, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    ended = stage.victims[AT_ONCE]
    stage.state.apply(Upserted(structs.replace(ended, status=PodStatus(phase="Succeeded"))))
    await asyncio.sleep(5)
    name = ended.metadata.name
    assert name not in stage.api.asked
    assert name not in stage.events.about
    assert f"v{AT_ONCE + 1}" in stage.api.asked


async def test_many_are_evicted_at_once_and_started_in_the_plans_order() -> None:
    stage = Stage(60, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    assert stage.api.asked == [f"v{at}" for at in range(AT_ONCE)]
    await asyncio.sleep(10)
    assert stage.api.asked == [f"v{at}" for at in range(60)]
    assert stage.api.most_under_way == AT_ONCE


async def test_the_last_workload_of_a_project_waits_for_those_before_it() -> None:
    stage = Stage(3, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    assert stage.api.asked == ["v0", "v1"]
    await asyncio.sleep(1)
    assert stage.api.asked == ["v0", "v1", "v2"]


async def test_nothing_is_evicted_for_a_workload_without_its_rows() -> None:
    stage = Stage(2, ApiServer())
    _, plan = stage.plan()
    stage.start(without_rows=frozenset({plan.admissions[0].workload.key}))
    await asyncio.sleep(5)
    assert stage.api.asked == []
    assert not any(map(stage.is_leaving, stage.victims))


async def test_victims_that_changed_since_the_plan_are_left_with_all_others_of_the_case() -> None:
    stage = Stage(2, ApiServer())
    snapshot, plan = stage.plan()
    stage.drop(stage.victims[0])
    stage.evictor.start(plan, snapshot, set())
    await asyncio.sleep(5)
    assert stage.api.asked == []


async def test_a_budget_whose_deadline_has_passed_is_overruled_for_victims_and_not_for_moves() -> (
    None
):
    stage = Stage(2, ApiServer(refused={"v0", "v1"}))
    hurried = project("team-a").build()
    spec = structs.replace(hurried.spec, disruption_budget_seconds=0)
    stage.state.apply(Upserted(structs.replace(hurried, spec=spec)))
    snapshot, plan = stage.plan()
    first, second = plan.evictions
    first = structs.replace(first, pod=structs.replace(first.pod, budgets=("team-a/b",)))
    refused, overruled = (
        value_of(each) for each in (metrics.EVICTION_REFUSALS, metrics.BUDGETS_OVERRULED)
    )
    plan.held_back = [HeldBack(each.pod.uid, each.pod.budgets, until=0) for each in (first, second)]
    place = Placement(second.pod, "n2", ())
    plan.moves = [Move(place, second.workload, Reason.MOVED, "")]
    plan.evictions = [first]
    stage.evictor.start(plan, snapshot, set())
    await asyncio.sleep(5)
    assert sorted(stage.api.asked) == ["v0", "v1"]
    assert stage.api.deleted == ["v0"]
    assert value_of(metrics.BUDGETS_OVERRULED) == overruled + 1
    assert value_of(metrics.EVICTION_REFUSALS) == refused + 1


async def test_the_model_has_victims_as_leaving_from_the_moment_they_are_queued() -> None:
    stage = Stage(60, ApiServer())
    stage.start()
    assert all(map(stage.is_leaving, stage.victims))
    stage.state.validate_state()
    # What the watch brings meanwhile changes nothing of that.
    stage.state.apply(Upserted(stage.victims[59]))
    assert stage.is_leaving(stage.victims[59])
    await asyncio.sleep(10)
    assert all(map(stage.is_leaving, stage.victims))


async def test_work_that_an_eviction_costs_stands_in_the_usage_books() -> None:
    stage = Stage(1, ApiServer())
    ledger = stage.state.gpu_node("n1")
    stage.meter.observe(Upserted(ledger), 900)
    stage.start()
    await asyncio.sleep(5)
    (loss,) = stage.meter.losses()
    assert loss.hold.uid == stage.victims[0].metadata.uid
    assert loss.milli_s >= 1000 * RESTART_S


async def test_work_that_an_eviction_costs_is_counted_for_its_project() -> None:
    def lost() -> float:
        name = "ballast_control_lost_gpu_seconds_total"
        return REGISTRY.get_sample_value(name, {"project": "team-a"}) or 0

    before, stage = lost(), Stage(1, ApiServer())
    stage.start()
    await asyncio.sleep(5)
    assert lost() - before >= RESTART_S


@pytest.mark.parametrize(("own_s", "stated_s"), [(45, None), (60, None), (61, 60), (3600, 60)])
async def test_the_grace_of_an_evicted_pod_is_bounded(own_s: int, stated_s: int | None) -> None:
    stage = Stage(1, ApiServer())
    bounded = project("team-a").build()
    spec = structs.replace(bounded.spec, max_termination_grace_seconds=60)
    stage.state.apply(Upserted(structs.replace(bounded, spec=spec)))
    stage.victims = [pod("v0").needs(1000).grace(own_s).version(9).bound("n1").build()]
    stage.state.apply(Upserted(stage.victims[0]))
    stage.start()
    await asyncio.sleep(5)
    assert stage.api.graces == [stated_s]


async def test_a_refusal_protects_all_of_a_gang_ever_longer_and_lets_the_rest_stay() -> None:
    stage = Stage(30, ApiServer(refused={"v1"}), gang="g")
    uids = {each.metadata.uid for each in stage.victims}
    stage.start()
    await asyncio.sleep(5)
    assert len(stage.api.asked) == AT_ONCE
    assert stage.evictor.protected() == uids
    assert not stage.is_leaving(stage.victims[1])
    assert not stage.is_leaving(stage.victims[29])
    await asyncio.sleep(FIRST_S)
    assert not stage.evictor.protected()
    stage.start()
    await asyncio.sleep(5 + FIRST_S)
    assert stage.evictor.protected() == uids


async def test_what_has_not_started_is_given_up_with_the_term() -> None:
    stage = Stage(60, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    await stage.evictor.close()
    assert len(stage.api.asked) == AT_ONCE
    assert not any(map(stage.is_leaving, stage.victims))


def _emptied(stage: Stage) -> tuple[Snapshot, Plan]:
    """The plan in which all victims move, so that n1 becomes empty."""
    snapshot, plan = stage.plan()
    plan.moves = [
        Move(Placement(each.pod, "n2", ()), each.workload, Reason.NODE_EMPTIED, "")
        for each in plan.evictions
    ]
    plan.admissions, plan.evictions = [], []
    return snapshot, plan


async def test_a_node_that_is_emptied_has_an_event_once_all_its_pods_leave() -> None:
    stage = Stage(2, ApiServer())
    snapshot, plan = _emptied(stage)
    stage.evictor.start(plan, snapshot, set())
    await asyncio.sleep(5)
    assert stage.api.asked == ["v0", "v1"]
    assert stage.events.about.count("n1") == 1


async def test_no_pod_leaves_a_node_that_is_emptied_when_a_budget_protects_one_of_them() -> None:
    stage = Stage(2, ApiServer(refused={"v1"}))
    snapshot, plan = _emptied(stage)
    last = plan.moves[1]
    covered = structs.replace(last.placement.pod, budgets=("team-a/b",))
    place = structs.replace(last.placement, pod=covered)
    plan.moves[1] = structs.replace(last, placement=place)
    stage.evictor.start(plan, snapshot, set())
    await asyncio.sleep(5)
    assert stage.api.asked == ["v1"]
    assert "n1" not in stage.events.about
    assert not any(map(stage.is_leaving, stage.victims))


async def test_a_stale_gang_leaves_where_places_of_a_node_that_is_emptied_were_refused() -> None:
    stage = Stage(2, ApiServer())
    snapshot, plan = _emptied(stage)
    last = plan.moves.pop().placement.pod
    stale = f"team-a/{last.name}"
    plan.evictions = [Eviction(last, stale, Reason.GANG_STALE, "", "")]
    stage.evictor.start(plan, snapshot, {""})
    await asyncio.sleep(5)
    assert stage.api.asked == ["v1"]


async def test_a_stale_gang_does_not_move_where_its_places_were_refused() -> None:
    stage = Stage(2, ApiServer(), gang="g")
    snapshot, plan = _emptied(stage)
    plan.moves = [structs.replace(each, reason=Reason.MOVED) for each in plan.moves]
    stage.evictor.start(plan, snapshot, {"team-a/g"})
    await asyncio.sleep(5)
    assert stage.api.asked == []
    assert not any(map(stage.is_leaving, stage.victims))


async def test_a_pod_leaves_until_the_api_server_says_what_became_of_its_eviction() -> None:
    """It counts as leaving, and is told why it leaves once that is certain."""
    stage = Stage(3, ApiServer())
    _, stayed, _ = stage.victims
    leaving = pod("v0").needs(1000).bound("n1").terminating().build()
    stage.api.left = {"v0": leaving, "v1": stayed, "v2": None}
    stage.start()
    await asyncio.sleep(stage.api.away_s - 1)
    assert all(map(stage.is_leaving, stage.victims))
    assert stage.events.about == []
    await asyncio.sleep(20)
    assert [stage.is_leaving(each) for each in stage.victims[:2]] == [True, False]
    assert stage.state.pod(stage.victims[2].metadata.uid) is None
    assert set(stage.events.about) & {"v0", "v1", "v2"} == {"v0"}
    stage.state.validate_state()


async def test_an_eviction_without_an_answer_that_did_not_happen_is_sent_again() -> None:
    """Else the nominations would be dropped, and another workload would get what was freed."""
    stage = Stage(3, ApiServer(away_s=0))
    stage.api.left, stage.api.answered_again = {"v1": stage.victims[1]}, {"v1"}
    stage.start()
    await asyncio.sleep(30)
    assert sorted(stage.api.asked) == ["v0", "v1", "v1", "v2"]
    assert all(map(stage.is_leaving, stage.victims))


async def test_an_eviction_is_not_sent_again_for_work_that_is_gone() -> None:
    stage = Stage(1, ApiServer())
    stage.api.left, stage.api.answered_again = {"v0": stage.victims[0]}, {"v0"}
    stage.start()
    await asyncio.sleep(5)
    stage.drop(stage.needy)
    await asyncio.sleep(60)
    assert stage.api.asked == ["v0"]
    assert not stage.is_leaving(stage.victims[0])


async def test_a_place_is_kept_until_it_is_known_what_became_of_the_eviction() -> None:
    stage = Stage(1, ApiServer())
    (victim,) = stage.victims
    stage.api.left = {"v0": victim}
    stage.state.apply(Upserted(gpu_node("n2", 1).holds(kept_row(victim, whole(0))).build()))
    snapshot, plan = _emptied(stage)
    stage.evictor.start(plan, snapshot, set())
    await asyncio.sleep(stage.api.away_s - 1)
    assert [each.node for each in stage.state.kept_places()] == ["n2"]
    assert stage.state.rows_to_free() == []
    await asyncio.sleep(20)
    assert [each.node for each in stage.state.rows_to_free()] == ["n2"]
