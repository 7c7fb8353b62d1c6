"""The minimum of a gang after pods have succeeded, and which stated minimum counts."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.events import Event, Removed, Upserted
from extender.api.objects import Pod
from extender.policy.workloads.gangs import next_chunks
from extender.state.cluster import ClusterState
from extender.state.model import GroupView, WorkloadView
from extender.state.trees import without_succeeded
from extender.state.workloads import finished
from extender.state.workloads.stated import ShortJob
from tests.support.builders import PodBuilder, node, pod, pod_group
from tests.unit.state.model import only, team_state, view_of


def member(name: str, min_member: int = 4, leaf: str = "") -> PodBuilder:
    built = pod(name).needs(1000).gang("g", min_member)
    return built.sub_group(leaf) if leaf else built


def ended(name: str, leaf: str = "", **more: Any) -> PodBuilder:
    return member(name, leaf=leaf, **more).bound("n1").ended()


def gone(name: str) -> Event:
    return Removed(Pod, f"uid-{name}", "team-a", name)


def starts(workload: WorkloadView) -> list[str]:
    """Names of the pods that must be placed next."""
    waiting = [each for each in workload.pods if each.state == "gated"]
    live = [each for each in workload.pods if each.state != "gated"]
    chunk = next(next_chunks(workload, live, waiting), ())
    return [each.name for each in chunk]


# -- flat gangs ------------------------------------------------------------------------------


def test_a_pod_that_is_made_again_does_not_wait_for_those_that_are_done() -> None:
    done = [ended(name).build() for name in "abc"]
    workload = only(*done, member("again").build())
    assert workload.min_member == 1
    assert starts(workload) == ["again"]


def test_minimum_of_a_pod_group_and_the_root_that_repeats_it_count_what_succeeded() -> None:
    near = {"ballast.dev/topology-preferred-level": "rack"}
    done = [member("a", 0).ended().build(), member("b", 0).ended().build()]
    state = team_state(pod_group("g", 3).build(), *done, member("c", 0).build())
    assert view_of(state).min_member == 1
    state = team_state(*done, member("c", 3).notes(near).build(), member("d", 3).build())
    assert view_of(state).min_member == 1


def test_pods_that_failed_are_waited_for() -> None:
    failed = member("b").bound("n1").ended("Failed").build()
    workload = only(ended("a").build(), failed, member("c").build())
    assert workload.min_member == 3
    assert starts(workload) == []


def test_pods_that_had_succeeded_count_after_they_were_deleted() -> None:
    state = team_state(*(ended(name).build() for name in "abc"), member("again").build())
    for name in "abc":
        state.apply(gone(name))
    assert view_of(state).min_member == 1
    assert starts(view_of(state)) == ["again"]


def test_a_deleted_pod_counts_for_the_next_pod_of_its_owner() -> None:
    state = team_state(ended("a").build(), ended("b").build(), member("c").bound("n1").build())
    for name in "abc":
        state.apply(gone(name))
    assert state.snapshot(0).workloads == {}
    state.apply(Upserted(member("again").build()))
    assert view_of(state).min_member == 2


def test_a_group_that_another_owner_makes_anew_has_its_whole_minimum() -> None:
    state = team_state(*(ended(name).build() for name in "abc"))
    for name in "abc":
        state.apply(gone(name))
    state.apply(Upserted(member("x").made_by("uid-other").build()))
    assert view_of(state).min_member == 4


def test_a_deleted_pod_counts_for_other_owners_that_ran_beside_it() -> None:
    beside = member("x").made_by("uid-other").bound("n1").build()
    state = team_state(beside, member("a").bound("n1").build(), ended("a").build())
    for each in (gone("a"), gone("x"), Upserted(member("y").made_by("uid-other").build())):
        state.apply(each)
    assert view_of(state).min_member == 3


def test_pods_without_owner_are_forgotten_with_the_last_of_their_group() -> None:
    state = team_state(ended("a").bare().build(), member("b").bare().build())
    state.apply(gone("a"))
    assert view_of(state).min_member == 3
    state.apply(gone("b"))
    state.apply(Upserted(member("c").bare().build()))
    assert view_of(state).min_member == 4


def test_a_pod_of_the_same_name_takes_the_place_of_one_that_had_succeeded() -> None:
    state = team_state(ended("worker-0").build(), member("worker-1").build())
    assert view_of(state).min_member == 3
    state.apply(gone("worker-0"))
    state.apply(Upserted(member("worker-0").uid("uid-2").build()))
    assert view_of(state).min_member == 4


def test_pods_without_gpus_are_not_counted() -> None:
    helper = pod("helper").gang("g").direct().ended().build()
    assert only(helper, member("a").build()).min_member == 4


def test_what_lives_needs_at_least_one() -> None:
    done = [ended(name).build() for name in "abcde"]
    assert only(*done, member("again").build()).min_member == 1


@pytest.mark.parametrize("lives", [True, False], ids=["beside a pod that lives", "alone"])
def test_what_a_success_costs_does_not_grow_with_those_before(lives: bool) -> None:
    def lines_run(n_before: int) -> int:
        """Lines of the module that run when one more pod succeeds, is deleted, and all is read."""
        state = team_state(*[member("lives").build()] * lives)
        for at in range(n_before):
            state.apply(Upserted(ended(f"before-{at}").build()))
            if at % 2:
                state.apply(gone(f"before-{at}"))
        state.snapshot(0)
        n_lines = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal n_lines
            n_lines += event == "line"
            return trace if frame.f_code.co_filename == finished.__file__ else None

        sys.settrace(trace)
        try:
            state.apply(Upserted(ended("one").build()))
            state.apply(gone("one"))
            state.snapshot(0)
        finally:
            sys.settrace(None)
        return n_lines

    assert 0 < lines_run(100) == lines_run(10)


# -- trees -----------------------------------------------------------------------------------


def test_each_sub_group_counts_its_own_pods() -> None:
    group = pod_group("g", 1).sub_group("driver").sub_group("workers", 3).build()
    done = [ended("d", "driver").build(), ended("w1", "workers").build()]
    waiting = [member(name, leaf="workers").build() for name in ("w2", "w3")]
    workload = only(group, *done, *waiting)
    assert workload.tree is not None
    assert [leaf.min_member for leaf in workload.tree.children] == [0, 2]
    assert workload.min_member == 2
    assert starts(workload) == ["w2", "w3"]


def test_a_sub_group_whose_pods_are_all_done_is_needed_no_more_at_any_level() -> None:
    group = pod_group("g", 1).sub_group("r1", 1).sub_group("r2", 1)
    for replica in ("r1", "r2"):
        group.sub_group(f"{replica}-leader", parent=replica)
        group.sub_group(f"{replica}-workers", 2, parent=replica)
    done = [ended("l1", "r1-leader").build()]
    done += [ended(name, "r1-workers").build() for name in ("w1", "w2")]
    waiting = [member("l2", leaf="r2-leader").build()]
    waiting += [member(name, leaf="r2-workers").build() for name in ("w3", "w4")]
    state = team_state(group.build(), *done, *waiting)
    assert starts(view_of(state)) == ["l2", "w3", "w4"]
    state.apply(Upserted(ended("l2", "r2-leader").build()))
    assert view_of(state).min_member == 2
    assert starts(view_of(state)) == ["w3", "w4"]


def test_surplus_of_one_sub_group_does_not_stand_in_for_another() -> None:
    tree = GroupView(
        name="",
        min_member=4,
        min_groups=2,
        children=(GroupView(name="a", min_member=2), GroupView(name="b", min_member=2)),
    )
    view = only(member("x").build())
    left = without_succeeded(replace(view, tree=tree), Counter(a=4)).tree
    assert left is not None
    assert (left.min_member, left.min_groups) == (2, 2)
    assert [child.min_member for child in left.children] == [0, 2]


# -- which minimum counts ---------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(4, 2), (2, 4)], ids=["scaled down", "scaled up"])
def test_number_of_the_youngest_pod_counts(old: int, new: int) -> None:
    pods = [member("z", old).created(10).build(), member("a", new).created(20).build()]
    assert only(*pods).min_member == new
    assert only(*pods, member("m", 0).created(30).build()).min_member == new


def test_largest_number_counts_among_pods_of_one_age() -> None:
    pods = [member("a", 2).created(10).build(), member("b", 4).created(10).build()]
    assert only(*pods).min_member == 4


def test_number_of_a_pod_group_counts_however_young_its_pods_are() -> None:
    state = team_state(pod_group("g", 3).build(), member("a", 2).created(9).build())
    assert view_of(state).min_member == 3


def test_number_of_a_pod_group_that_repeats_its_pods_is_theirs_until_somebody_changes_it() -> None:
    said = {"ballast.dev/min-member": "4"}
    state = team_state(pod_group("g", 4).notes(said).build(), member("a", 2).build())
    assert view_of(state).min_member == 2
    state.apply(Upserted(pod_group("g", 3).notes(said).build()))
    assert view_of(state).min_member == 3
    state.apply(Upserted(pod_group("g", 3).notes(said | {"ballast.dev/min-member": "3"}).build()))
    assert view_of(state).min_member == 2


def test_a_gang_that_runs_may_go_on_with_its_size_when_its_owner_asks_for_more() -> None:
    runs = [member(name, 2).created(10).bound("n1").build() for name in "ab"]
    more = [member("c", 4).created(20).bound("n1").build(), member("d", 4).created(20).build()]
    state = team_state(node("n1").build(), *runs, *more)
    state.snapshot(0)
    assert (view_of(state).min_member, view_of(state).stale_since) == (2, None)
    assert starts(view_of(state)) == ["d"]


def test_a_gang_whose_pods_all_leave_comes_back_in_its_new_size() -> None:
    leave = [member(name, 2).created(10).bound("n1").terminating().build() for name in "ab"]
    new = [member(name, 4).created(20).build() for name in "cd"]
    assert only(*leave, *new).min_member == 4


# -- what a Job is known to run at once --------------------------------------------------------


def of_job(name: str, min_member: int = 4) -> PodBuilder:
    return member(name, min_member).made_by("job-1")


def test_a_gang_that_lacks_a_pod_is_as_large_as_its_job() -> None:
    state = team_state(*(of_job(name).bound("n1").build() for name in "abc"))
    (job,) = state.short_jobs()
    assert (job.namespace, job.name) == ("team-a", "job")
    state.snapshot(7)
    assert (view_of(state).min_member, view_of(state).stale_since) == (4, 7)
    state.set_job_size(job, 3)
    assert (view_of(state).min_member, view_of(state).stale_since) == (3, None)
    state.set_job_size(job, None)
    assert view_of(state).min_member == 4


def test_a_job_that_asks_for_more_or_for_nothing_leaves_a_minimum() -> None:
    state = team_state(of_job("a").build())
    (job,) = state.short_jobs()
    state.set_job_size(job, 9)
    assert view_of(state).min_member == 4
    state.set_job_size(job, 0)
    assert view_of(state).min_member == 1


def scaled_down_and_up_again() -> tuple[ClusterState, ShortJob]:
    """A gang of a Job of 4 that was scaled to 3 and back; its fourth pod waits."""
    state = team_state(node("n1").build(), *(of_job(name).bound("n1").build() for name in "abc"))
    (job,) = state.short_jobs()
    state.set_job_size(job, 3)
    state.apply(Upserted(of_job("d").created(20).build()))
    state.set_job_size(job, 4)
    return state, job


def test_a_gang_runs_on_when_its_job_is_scaled_up_again() -> None:
    state, job = scaled_down_and_up_again()
    state.snapshot(7)
    assert (view_of(state).min_member, view_of(state).stale_since) == (3, None)
    assert starts(view_of(state)) == ["d"]
    assert state.short_jobs() == {job}


def test_a_job_that_was_scaled_up_again_counts_in_full_once_all_its_pods_run() -> None:
    state, job = scaled_down_and_up_again()
    state.apply(Upserted(of_job("d").created(20).bound("n1").build()))
    assert not state.short_jobs()
    state.set_job_size(job, None)
    state.apply(gone("c"))
    assert view_of(state).min_member == 4


def test_a_job_that_was_scaled_up_again_starts_in_full_once_no_pod_of_it_runs() -> None:
    state, job = scaled_down_and_up_again()
    for name, again in zip("abc", "efg", strict=True):
        state.apply(gone(name))
        state.apply(Upserted(of_job(again).created(30).build()))
    assert not state.short_jobs()
    state.set_job_size(job, None)
    assert view_of(state).min_member == 4


@pytest.mark.parametrize("leaves", [False, True])
def test_a_pod_that_leaves_is_one_less(leaves: bool) -> None:
    last = of_job("d").bound("n1")
    last = last.terminating() if leaves else last
    state = team_state(*(of_job(name).bound("n1").build() for name in "abc"), last.build())
    assert len(state.short_jobs()) == leaves


def test_a_pod_that_has_succeeded_is_not_one_less() -> None:
    live = [of_job(name).bound("n1").build() for name in "abc"]
    assert not team_state(*live, of_job("d").bound("n1").ended().build()).short_jobs()


def test_pods_of_other_owners_and_groups_of_people_have_no_job() -> None:
    assert not team_state(of_job("a").build(), member("b").made_by("job-2").build()).short_jobs()
    assert not team_state(of_job("a").build(), member("b").build()).short_jobs()
    assert not team_state(pod_group("g", 4).build(), of_job("a").build()).short_jobs()
    assert not team_state(pod("alone").needs(1000).made_by("job-1").build()).short_jobs()


def test_a_pod_says_whether_a_job_makes_it() -> None:
    other = of_job("b").build()
    [maker] = other.metadata.owner_references or []
    maker.kind = "JobSet"
    pods = only(of_job("a").build(), other).pods
    assert {pod.name: pod.is_of_job for pod in pods} == {"a": True, "b": False}
