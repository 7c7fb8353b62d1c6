"""Pods that hold cards without a row: they use room on nodes, and no project is charged."""

from typing import Any

import pytest

from extender.api.events import Removed, Upserted
from extender.api.kinds import ForeignHold, GpuNode
from extender.api.objects import Pod
from extender.api.reasons import Reason, Refused
from extender.ledger.rows import add_rows
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, node, part, pod, project, row, whole
from tests.unit.state.model import free_cards, state_of

MIG = "nvidia.com/mig-1g.10gb"


def allocated(state: ClusterState, name: str) -> int:
    state.validate_state()
    plan = decide(state.snapshot(0), Settings())
    return plan.shares[name, "default"].allocated[0]


def ready(name: str, cards: int) -> Any:
    return node(name).gpus(cards).host("64", "64Gi").build()


def stranger(name: str, gpus: int) -> Any:
    """A pod that another scheduler placed."""
    return pod(name).of("elsewhere").needs(1000, devices=gpus).direct().unledgered()


# -- pods that wait for another scheduler ----------------------------------------------------


def lent_cluster(*more: Any) -> ClusterState:
    """team-b holds both cards of the only node, one of them as a loan from team-a."""
    running = [pod(f"b{ix}").of("team-b").needs(1000).bound("n1").build() for ix in range(2)]
    rows = [row(each, whole(ix), "bound") for ix, each in enumerate(running)]
    ledger = gpu_node("n1", 2).holds(*rows).build()
    teams = [project(name).quota("1").build() for name in ("team-a", "team-b")]
    return state_of(ready("n1", 2), ledger, *teams, *running, *more)


@pytest.mark.parametrize(
    "waiting",
    [
        pod("a").needs(1000),
        pod("a").needs(1000).gang("g", 1),
        pod("a").needs(1000).priority(125),
    ],
    ids=["alone", "gang", "non-preemptible"],
)
def test_nothing_is_asked_for_or_evicted_for_a_pod_that_waits_for_another_scheduler(
    waiting: Any,
) -> None:
    state = lent_cluster(waiting.scheduler("volcano").build())
    state.validate_state()
    plan = decide(state.snapshot(1_000), Settings())
    assert (plan.evictions, plan.admissions) == ([], [])
    assert plan.shares["team-b", "default"].fair_share[0] == 2000


def test_a_pod_that_waited_for_another_scheduler_holds_cards_once_it_is_bound() -> None:
    waiting = pod("a").needs(1000).scheduler("volcano")
    state = state_of(gpu_node("n1", 2).build(), waiting.build())
    assert free_cards(state, "n1") == [1000, 1000]
    state.apply(Upserted(waiting.unledgered().bound("n1").version(2).build()))
    assert free_cards(state, "n1") == [1000, 0]


# -- nodes -----------------------------------------------------------------------------------


def test_a_foreign_pod_takes_whole_cards_of_its_node_the_last_first() -> None:
    state = state_of(gpu_node("n1", 4).build(), stranger("s", 3).bound("n1").build())
    assert free_cards(state, "n1") == [1000, 0, 0, 0]
    state.apply(Removed(Pod, "uid-s", "elsewhere", "s"))
    assert free_cards(state, "n1") == [1000] * 4


def test_a_foreign_pod_takes_cards_that_have_no_row() -> None:
    ours = pod("a").needs(500).bound("n1").build()
    ledger = gpu_node("n1", 3).holds(row(ours, part(2, 500), "bound")).build()
    state = state_of(ledger, ours, stranger("s", 1).bound("n1").build())
    assert free_cards(state, "n1") == [1000, 0, 500]


def test_foreign_pods_take_no_more_than_the_node_has() -> None:
    mirror = stranger("s", 60).bound("n1").mirror().build()
    state = state_of(gpu_node("n1", 2).build(), gpu_node("n2", 2).build(), mirror)
    assert (free_cards(state, "n1"), free_cards(state, "n2")) == ([0, 0], [1000, 1000])
    assert state.differences().foreign["n1"][0].gpus == 2


def test_cards_that_foreign_pods_share_with_rows_stay_taken_when_the_rows_go() -> None:
    ours = pod("a").needs(1000).bound("n1").build()
    ledger = gpu_node("n1", 1).holds(row(ours, whole(0), "bound")).build()
    state = state_of(ledger, ours, stranger("s", 1).bound("n1").build())
    assert free_cards(state, "n1") == [-1000]
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    state.apply(Upserted(gpu_node("n1", 1).version(2).build()))
    assert free_cards(state, "n1") == [0]


@pytest.mark.parametrize(
    "not_foreign",
    [
        pod("a").needs(1000).direct().unledgered(),
        pod("a").of("ballast-node").needs(1000).unledgered().bound("n1"),
        pod("a").host("1", "1Gi").unledgered().bound("n1"),
        pod("a").needs(1000).unledgered().bound("n1").ended(),
    ],
    ids=["not bound", "another name", "without GPUs", "ended"],
)
def test_what_is_not_foreign_takes_no_cards(not_foreign: Any) -> None:
    built = not_foreign.build()
    if built.metadata.namespace == "ballast-node":
        built.metadata.name = "ballast-holder-0123456789-0"
    assert free_cards(state_of(gpu_node("n1", 2).build(), built), "n1") == [1000, 1000]


def test_a_pod_that_only_has_the_name_of_a_holder_is_foreign() -> None:
    built = stranger("ballast-holder-0123456789-0", 1).bound("n1").build()
    assert free_cards(state_of(gpu_node("n1", 2).build(), built), "n1") == [1000, 0]


def test_a_foreign_pod_with_a_contradictory_request_takes_what_the_plugin_gave_it() -> None:
    built = stranger("s", 2).notes({"gpu-fraction": "0.5"}).bound("n1").build()
    assert free_cards(state_of(gpu_node("n1", 2).build(), built), "n1") == [0, 0]


@pytest.mark.parametrize("cards", ["0:1:1", "0:1000:1", "0:500:1,1:500:1", "x"])
def test_cards_that_are_not_what_the_pod_asks_for_make_it_no_less_foreign(cards: str) -> None:
    built = stranger("s", 2).notes({"ballast.dev/cards": cards}).bound("n1").build()
    assert free_cards(state_of(gpu_node("n1", 2).build(), built), "n1") == [0, 0]


def test_a_row_makes_a_foreign_pod_ours_and_its_loss_makes_it_foreign_again() -> None:
    built = pod("a").needs(1000).unledgered().bound("n1").build()
    state = state_of(project("team-a").build(), gpu_node("n1", 2).build(), ready("n1", 2), built)
    assert state.pod("uid-a") is None
    state.apply(Upserted(gpu_node("n1", 2).version(2).holds(row(built, whole(0))).build()))
    assert free_cards(state, "n1") == [0, 1000]
    assert state.pod("uid-a") is not None
    state.apply(Upserted(gpu_node("n1", 2).version(3).build()))
    assert free_cards(state, "n1") == [1000, 0]


def test_a_row_on_another_node_than_the_foreign_pods_is_freed() -> None:
    built = pod("a").needs(1000).unledgered().bound("n1").build()
    ledger = gpu_node("n2", 1).holds(row(built, whole(0))).build()
    (stray,) = state_of(gpu_node("n1", 1).build(), ledger, built).rows_to_free()
    assert (stray.node, stray.cause, stray.is_confirmed) == ("n2", "elsewhere", True)


def test_what_the_status_says_of_foreign_pods_is_brought_up_to_date() -> None:
    state = state_of(gpu_node("n1", 2).build(), stranger("s", 1).bound("n1").build())
    hold = ForeignHold(uid="uid-s", namespace="elsewhere", name="s", gpus=1)
    assert state.differences().foreign == {"n1": (hold,)}
    state.apply(Upserted(gpu_node("n1", 2).version(2).foreign("s", 1).build()))
    assert state.differences().foreign == {}
    state.apply(Removed(Pod, "uid-s", "elsewhere", "s"))
    assert state.differences().foreign == {"n1": ()}


# -- queues ----------------------------------------------------------------------------------


@pytest.mark.parametrize("as_mirror", [False, True])
def test_a_foreign_pod_is_charged_to_no_project_and_its_cards_are_not_shared(
    as_mirror: bool,
) -> None:
    built = pod("s").needs(1000, devices=3).host("4", "1Gi").unledgered().bound("n1")
    state = state_of(
        project("team-a").build(),
        gpu_node("n1", 4).build(),
        ready("n1", 4),
        (built.mirror() if as_mirror else built).build(),
        pod("waits").needs(1000, devices=2).build(),
    )
    assert allocated(state, "team-a") == 0
    share = decide(state.snapshot(0), Settings()).shares["team-a", "default"]
    assert share.fair_share[0] == 1000


def test_a_mirror_pod_is_charged_to_no_project_whatever_it_writes() -> None:
    forged = {"ballast.dev/plan": "1 n1", "ballast.dev/cards": "0:1000:1"}
    state = state_of(
        project("team-a").build(),
        gpu_node("n1", 4).build(),
        ready("n1", 4),
        pod("gpu").needs(1000).notes(forged).bound("n1").mirror().build(),
        pod("mig").instances(MIG, 7).notes(forged).bound("n1").mirror().build(),
        pod("cpu").host("60", "1Gi").notes(forged).bound("n1").mirror().build(),
    )
    assert state.workloads() == {}
    assert state.lost_rows() == []


def test_work_goes_to_the_node_that_foreign_pods_left_free() -> None:
    state = state_of(
        project("team-a").build(),
        *(gpu_node(name, 4).build() for name in ("n1", "n2")),
        *(ready(name, 4) for name in ("n1", "n2")),
        stranger("s", 4).bound("n1").build(),
        pod("waits").needs(1000, devices=4).build(),
    )
    (admission,) = decide(state.snapshot(0), Settings()).admissions
    assert [place.node for place in admission.placements] == ["n2"]


# -- the ledger ------------------------------------------------------------------------------


def judged(ledger: GpuNode, cards: list[Any], state: Any = "reserved") -> Reason | None:
    outcome = add_rows(ledger, [row(pod("new").needs(1000).build(), cards, state)])
    return outcome.reason if isinstance(outcome, Refused) else None


def test_a_row_leaves_the_cards_that_foreign_pods_hold() -> None:
    ledger = gpu_node("n1", 4).foreign("s", 2).build()
    assert judged(ledger, whole(0, 1)) is None
    assert judged(ledger, whole(2, 3)) is None
    assert judged(ledger, whole(0, 1, 2)) is Reason.CARDS_BUSY
    assert judged(ledger, whole(0, 1, 2), "nominated") is Reason.CARDS_BUSY
    assert judged(ledger, whole(0, 1, 2), "bound") is None


def test_a_card_that_is_shared_already_is_not_one_more() -> None:
    other = row(pod("other").needs(500).build(), part(0, 500), "bound")
    ledger = gpu_node("n1", 2).holds(other).foreign("s", 1).build()
    assert judged(ledger, part(0, 500)) is None
    assert judged(ledger, part(1, 500)) is Reason.CARDS_BUSY


def test_a_place_that_is_held_for_later_counts_foreign_pods_but_not_its_victims() -> None:
    victim = row(pod("victim").needs(1000).build(), whole(0), "bound")
    ledger = gpu_node("n1", 2).holds(victim).foreign("s", 1).build()
    assert judged(ledger, whole(0), "nominated") is None
    assert judged(ledger, whole(0, 1), "nominated") is Reason.CARDS_BUSY


def test_a_place_that_was_held_is_reserved_once_its_victims_are_gone() -> None:
    mine = pod("new").needs(1000).build()
    held = row(mine, whole(0), "nominated")
    ledger = gpu_node("n1", 2).holds(held).foreign("s", 1).build()
    assert judged(ledger, whole(0)) is None
    assert judged(gpu_node("n1", 2).holds(held).foreign("s", 2).build(), whole(0)) is (
        Reason.CARDS_BUSY
    )
