"""Which node pools a workload may use."""

from extender.api.events import Upserted
from extender.api.reasons import Reason
from tests.support.builders import (
    pod,
    pool,
    project,
)
from tests.unit.state.model import only, state_of, workloads_of


def test_the_pods_own_node_pools_win() -> None:
    workload = only(
        pool("x", a="1").build(),
        pool("y", a="2").build(),
        pod("a").needs(500).pools("y", "x").build(),
    )
    assert workload.pools == ("y", "x")


def test_an_unknown_node_pool_is_a_problem() -> None:
    workload = only(pod("a").needs(500).pools("x").build())
    assert workload.problem is not None
    assert workload.problem.reason is Reason.UNKNOWN_NODE_POOL


def test_without_a_word_the_projects_default_pools_count() -> None:
    state = state_of(
        pool("x", a="1").build(),
        pool("y", a="2").build(),
        project("team-a").default_pools("y").quota(4, pool="x").build(),
        pod("a").needs(500).build(),
    )
    assert workloads_of(state)["team-a/a"].pools == ("y",)


def test_without_defaults_the_pools_of_the_projects_figures_count() -> None:
    state = state_of(
        pool("x", a="1").build(),
        pool("y", a="2").build(),
        project("team-a").quota(4, pool="y").build(),
        pod("a").needs(500).build(),
    )
    assert workloads_of(state)["team-a/a"].pools == ("y",)


def test_without_any_figures_all_pools_count() -> None:
    workload = only(pool("x", a="1").build(), pod("a").needs(500).build())
    assert workload.pools == ("default", "x")


def test_a_node_pool_that_comes_later_mends_the_workload() -> None:
    state = state_of(project("team-a").build(), pod("a").needs(500).pools("x").build())
    assert workloads_of(state)["team-a/a"].problem is not None
    state.apply(Upserted(pool("x", a="1").build()))
    assert workloads_of(state)["team-a/a"].problem is None
