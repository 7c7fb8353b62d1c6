"""Figures of departments, projects and node pools, and their hierarchy."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from extender.api.kinds import GpuNodePool, GpuProject, HostFigures
from extender.state.model import UNBOUND, UNLIMITED, Figures, PoolQuota
from extender.state.queues import Queues
from tests.support.builders import department, pool, project


def test_figures_become_integers() -> None:
    queues = Queues()
    queues.set_project(project("p").quota("2.5", limit=4, weight=3, rank=1).build())
    assert queues.project_views["p"].pools == {"default": PoolQuota(Figures(2500, 4000, 3), rank=1)}


def test_cpu_and_memory_are_counted_where_a_figure_is_given() -> None:
    queues = Queues()
    built = project("p").quota(1, cpu=HostFigures(quota="64", limit="128500m"))
    queues.set_project(built.quota(1, pool="x", memory=HostFigures(limit="2Ti")).build())
    views = queues.project_views["p"].pools
    assert views["default"].cpu == Figures(64_000, 128_500)
    assert views["default"].memory == UNBOUND
    assert views["x"].memory == Figures(UNLIMITED, 2 * 1024 * 1024)


def test_a_department_shares_cpu_and_memory_by_quota_where_it_has_one() -> None:
    queues = Queues()
    built = department("science").quota(8, cpu=HostFigures(quota="64"))
    queues.set_department(built.build())
    figures = queues.department_views["department/science"].pools["default"]
    assert figures.cpu == Figures(64_000, UNLIMITED, weight=64_000)
    assert figures.memory == UNBOUND


def test_a_department_without_a_quota_weighs_as_one_with_a_quota_of_one_gpu() -> None:
    queues = Queues()
    queues.set_department(department("science").quota(0).build())
    figures = queues.department_views["department/science"].pools["default"]
    assert (figures.gpu.weight, figures.rank) == (1000, 1)


def test_a_malformed_figure_of_cpu_binds_nobody_until_it_is_mended() -> None:
    queues = Queues()
    queues.set_project(project("p").quota(1, cpu=HostFigures(quota="many")).build())
    assert queues.project_views["p"].pools["default"].cpu == UNBOUND
    (problem,) = (each for each in queues.problems() if each.fault == "InvalidFigures")
    assert problem.text.endswith("none is in force until it is corrected")


def test_a_malformed_quota_keeps_the_last_good_one_and_is_reported() -> None:
    queues = Queues()
    queues.set_department(department("science").quota(8).build())
    queues.set_department(department("science").quota("eight", limit=9).build())
    assert queues.department_views["department/science"].pools["default"] == PoolQuota(
        Figures(8000, 9000, weight=8000)
    )
    (problem,) = queues.problems()
    assert (problem.kind, problem.name, problem.fault) == (
        "GpuDepartment",
        "science",
        "InvalidFigures",
    )
    assert problem.text.startswith("node pool default: gpu.quota: 'eight' is not a number of GPUs")
    assert problem.text.endswith("the last good one is in force")


def test_a_malformed_figure_that_never_was_good_gives_nothing() -> None:
    queues = Queues()
    queues.set_department(department("science").quota("1e3", limit="many").build())
    figures = queues.department_views["department/science"].pools["default"]
    assert (figures.gpu.quota, figures.gpu.limit) == (0, 0)
    assert [problem.text.rpartition("; ")[2] for problem in queues.problems()] == [
        "0 is in force until it is corrected",
        "0 is in force until it is corrected",
    ]


def test_a_mended_figure_is_no_problem_any_more() -> None:
    queues = Queues()
    queues.set_department(department("science").quota("eight").build())
    queues.set_department(department("science").quota("8").build())
    assert list(queues.problems()) == []


def test_a_pool_listed_twice_counts_once_and_is_reported() -> None:
    queues = Queues()
    queues.set_department(department("science").quota(1).quota(2).build())
    assert queues.department_views["department/science"].pools["default"].gpu.quota == 1000
    assert [str(problem) for problem in queues.problems()] == [
        "GpuDepartment science: node pool default is listed twice: the first counts"
    ]


def test_figures_for_a_missing_node_pool_are_reported_until_it_exists() -> None:
    queues = Queues()
    queues.set_department(department("science").quota(4, pool="h100").build())
    queues.set_project(project("p").of("science").quota(2, pool="h100").build())
    assert [str(problem) for problem in queues.problems()] == [
        "GpuDepartment science: node pool h100 does not exist: its figures have no effect",
        "GpuProject p: node pool h100 does not exist: its figures have no effect",
    ]
    queues.set_pool(pool("h100", gpu="h100").build())
    assert list(queues.problems()) == []


def test_a_project_of_a_missing_department_gets_one_without_quota() -> None:
    queues = Queues()
    queues.set_project(project("p").of("nowhere").build())
    assert queues.department_views["department/nowhere"].pools == {}
    assert [str(problem) for problem in queues.problems()] == [
        "GpuProject p: department nowhere does not exist: it counts as one without quota"
    ]
    queues.drop_project("p")
    assert "department/nowhere" not in queues.department_views


def test_a_removed_department_stays_without_quota_while_projects_name_it() -> None:
    queues = Queues()
    queues.set_department(department("science").quota(8).build())
    queues.set_project(project("p").build())
    queues.drop_department("science")
    assert queues.department_views["department/science"].pools == {}


def test_the_first_pool_by_name_that_selects_a_node_has_it() -> None:
    queues = Queues()
    for each in (pool("b", gpu="h100"), pool("a", gpu="h100", zone="z1")):
        queues.set_pool(each.build())
    assert queues.pool_of({"gpu": "h100", "zone": "z1"}) == "a"
    assert queues.pool_of({"gpu": "h100"}) == "b"
    assert queues.pool_of({}) == "default"


def test_a_pool_without_a_selector_takes_only_what_no_other_selects() -> None:
    queues = Queues()
    for each in (pool("all"), pool("b", gpu="h100")):
        queues.set_pool(each.build())
    assert queues.pool_of({"gpu": "h100"}) == "b"
    assert queues.pool_of({}) == "all"


def test_the_default_pool_exists_whether_or_not_it_is_described() -> None:
    queues = Queues()
    queues.set_pool(pool("default").spread().build())
    described = queues.pool_views["default"]
    queues.drop_pool("default")
    undescribed = Queues().pool_views["default"]
    assert described == replace(undescribed, gpu_placement="spread")
    assert queues.pool_views["default"] == undescribed
    assert (undescribed.reclaim_band_percent, undescribed.checkpoint_s) == (15, 1800)


def test_projects_share_by_quota_in_a_pool_whose_weights_are_off() -> None:
    queues = Queues()
    queues.set_project(project("p").quota(2, weight=5).quota(3, pool="x", weight=5).build())
    queues.set_pool(pool("x", gpu="h100").without_weights().build())
    figures = queues.views()["p"].pools
    assert (figures["default"].gpu.weight, figures["x"].gpu.weight) == (5, 3000)


def test_a_status_update_changes_nothing() -> None:
    queues = Queues()
    queues.set_project(project("p").quota(1).build())
    before = queues.project_views
    assert queues.set_project(project("p").quota(1).version(2).build()) == set()
    assert queues.project_views is before


def test_a_weight_or_rank_of_a_department_is_told_to_have_no_effect() -> None:
    queues = Queues()
    queues.set_department(department("science").quota(1, weight=3, rank=2).build())
    assert [str(problem) for problem in queues.problems()] == [
        "GpuDepartment science: node pool default: gpu.overQuotaWeight: has no effect,"
        " the weight of a department is its quota",
        "GpuDepartment science: node pool default: rank: has no effect, departments have none",
    ]


ELASTIC = {
    "maxNodes": 4,
    "consolidateAfterMinutes": 30,
    "node": {"gpus": 8, "cpu": 64, "memoryGiB": 512},
}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"placement": {"gpu": "Spread"}}, {"gpu_placement": "spread"}),
        ({"placement": {"gpu": "LeastFragmentation"}}, {"gpu_placement": "fgd"}),
        ({"placement": {"gpu": "BestFit"}}, {"gpu_placement": "best-fit"}),
        ({"placement": {"gpu": "FirstFit"}}, {"gpu_placement": "first-fit"}),
        ({"policy": "DemandWeighted"}, {"policy": "demand-weighted"}),
        ({"policy": "Priority"}, {"policy": "priority"}),
        ({"preemption": "Disabled"}, {"has_preemption": False}),
        ({"jobOrder": "StrictFifo"}, {"job_order": "strict-fifo"}),
        ({"timeBasedFairShare": {"weightPercent": 50}}, {"usage_weight_milli": 500}),
        ({"disruptionBudgetSeconds": 60}, {"disruption_budget_s": 60}),
        ({"maxTerminationGraceSeconds": 90}, {"max_grace_s": 90}),
        ({"reclaimBandPercent": 25}, {"reclaim_band_percent": 25}),
        ({"checkpointSeconds": 600}, {"checkpoint_s": 600}),
    ],
    ids=str,
)
def test_what_a_node_pool_states_is_what_decisions_read(
    spec: dict[str, Any], found: dict[str, Any]
) -> None:
    queues = Queues()
    usual = queues.pool_views["default"]
    document = {"metadata": {"name": "default"}, "spec": spec}
    queues.set_pool(msgspec.convert(document, GpuNodePool))
    assert queues.pool_views["default"] == replace(usual, **found)


@pytest.mark.parametrize("policy", ["FairShare", "DemandWeighted", "Priority"])
def test_only_a_pool_of_fair_shares_grows(policy: str) -> None:
    queues = Queues()
    document = {"metadata": {"name": "p"}, "spec": {"policy": policy, "elastic": ELASTIC}}
    queues.set_pool(msgspec.convert(document, GpuNodePool))
    view = queues.pool_views["p"]
    assert view.consolidate_after_s == 1800
    assert (view.elastic is not None) is (policy == "FairShare")
    if view.elastic is not None:
        sizes = view.elastic.n_gpus, view.elastic.cpu_milli, view.elastic.memory_mib
        assert (view.elastic.max_nodes, sizes) == (4, (8, 64_000, 512 * 1024))
        assert not view.elastic.reads_pods


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {"minRuntime": {"reclaimSeconds": 600, "preemptSeconds": 60}},
            {"reclaim_min_runtime_s": 600, "preempt_min_runtime_s": 60},
        ),
        ({"disruptionBudgetSeconds": 30}, {"disruption_budget_s": 30}),
        ({"maxTerminationGraceSeconds": 45}, {"max_grace_s": 45}),
    ],
    ids=str,
)
def test_what_a_project_states_is_what_decisions_read(
    spec: dict[str, Any], found: dict[str, Any]
) -> None:
    views = []
    for more in ({}, spec):
        queues = Queues()
        document = {"metadata": {"name": "p"}, "spec": {"department": "science", **more}}
        queues.set_project(msgspec.convert(document, GpuProject))
        views.append(queues.project_views["p"])
    assert views[1] == replace(views[0], **found)
