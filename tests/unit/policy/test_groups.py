"""Trees of groups: valid states, which pods must start next, and which may be evicted."""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.policy.decide import decide
from extender.policy.workloads.gangs import is_satisfied, next_chunks, unit_of
from extender.state.model import GroupView, PodView, WorkloadView
from tests.support.snapshots import Cluster, counts, statuses


def group(
    name: str = "", *children: GroupView, least: int = 0, groups: int | None = None
) -> GroupView:
    return GroupView(name=name, min_member=least, min_groups=groups, children=children)


def workload(tree: GroupView | None, leaves: str, *, least: int = 0) -> WorkloadView:
    """One pod for every letter of `leaves`, in the leaf of that name."""
    pods = tuple(
        PodView(uid=f"{leaf}{at}", namespace="ns", name=f"{leaf}{at}", group=leaf)
        for at, leaf in enumerate(leaves)
    )
    least = tree.min_member if tree else least
    return WorkloadView(
        key="ns/w", namespace="ns", name="w", min_member=least, pods=pods, tree=tree
    )


def next_chunk(
    workload: WorkloadView, live: Sequence[PodView], waiting: Sequence[PodView]
) -> Sequence[PodView]:
    return next(next_chunks(workload, live, waiting), ())


def names(pods: object) -> list[str]:
    return [pod.uid for pod in pods]  # type: ignore[attr-defined]


#: A leader and two replicas of a leader and a worker each, of which one replica must run.
REPLICAS = group("", group("a", least=2), group("b", least=2), groups=1)


class TestLegalStates:
    def test_nothing_is_legal_and_less_than_the_minimum_is_not(self) -> None:
        gang = workload(None, "....", least=3)
        assert is_satisfied(gang, ())
        assert not is_satisfied(gang, gang.pods[:2])
        assert is_satisfied(gang, gang.pods[:3])

    def test_every_group_that_holds_something_needs_its_minimum(self) -> None:
        job = workload(REPLICAS, "aabb")
        assert is_satisfied(job, job.pods[:2])
        assert not is_satisfied(job, job.pods[:3])
        assert not is_satisfied(job, (job.pods[0], job.pods[2]))

    def test_as_many_groups_as_are_asked_for_must_be_satisfied(self) -> None:
        both = workload(group("", group("a", least=1), group("b", least=1), groups=2), "aab")
        assert not is_satisfied(both, both.pods[:2])
        assert is_satisfied(both, both.pods[1:])

    def test_group_without_a_minimum_may_stay_empty(self) -> None:
        job = workload(group("", group("a", least=1), group("b"), groups=2), "ab")
        assert is_satisfied(job, job.pods[:1])

    def test_minimum_of_a_parent_counts_all_pods_below_it(self) -> None:
        job = workload(group("", group("a", least=1), group("b", least=1), least=3), "aabb")
        assert not is_satisfied(job, job.pods[:2])
        assert is_satisfied(job, job.pods[:3])


class TestWhatStartsNext:
    def test_flat_gang_starts_with_its_minimum_and_grows_by_one(self) -> None:
        gang = workload(None, ".....", least=3)
        assert names(next_chunk(gang, (), gang.pods)) == [".0", ".1", ".2"]
        assert names(next_chunk(gang, gang.pods[:3], gang.pods[3:])) == [".3"]

    def test_gang_below_its_minimum_must_reach_it_when_it_grows(self) -> None:
        gang = workload(None, "....", least=3)
        assert names(next_chunk(gang, gang.pods[:1], gang.pods[1:])) == [".1", ".2"]
        assert not next_chunk(gang, gang.pods[:1], gang.pods[1:2])

    def test_only_as_many_groups_start_as_must(self) -> None:
        job = workload(REPLICAS, "aabb")
        assert names(next_chunk(job, (), job.pods)) == ["a0", "a1"]

    def test_further_group_starts_with_its_own_minimum(self) -> None:
        job = workload(REPLICAS, "aabb")
        assert names(next_chunk(job, job.pods[:2], job.pods[2:])) == ["b2", "b3"]

    def test_group_that_lacks_pods_is_passed_over(self) -> None:
        job = workload(REPLICAS, "abb")
        assert names(next_chunk(job, (), job.pods)) == ["b1", "b2"]

    def test_group_that_holds_something_is_completed_first(self) -> None:
        job = workload(REPLICAS, "aabb")
        live, waiting = job.pods[2:3], (*job.pods[:2], job.pods[3])
        assert names(next_chunk(job, live, waiting)) == ["b3"]

    def test_no_chunk_when_a_needed_group_lacks_pods(self) -> None:
        both = workload(group("", group("a", least=2), group("b", least=1), groups=2), "ab")
        assert not next_chunk(both, (), both.pods)

    def test_minimum_of_the_parent_is_filled_with_surplus(self) -> None:
        tree = group("", group("a", least=1), group("b", least=1), least=3, groups=2)
        job = workload(tree, "aaabbb")
        assert names(next_chunk(job, (), job.pods)) == ["a0", "b3", "a1"]

    def test_surplus_goes_to_the_group_that_holds_least_of_its_minimum(self) -> None:
        job = workload(group("", group("a", least=1), group("b", least=2), groups=2), "aaabbbb")
        live = (*job.pods[:1], *job.pods[3:5])
        assert names(next_chunk(job, live, (*job.pods[1:3], *job.pods[5:]))) == ["a1"]
        live = (*job.pods[:2], *job.pods[3:5])
        assert names(next_chunk(job, live, (job.pods[2], *job.pods[5:]))) == ["b5"]

    def test_other_surplus_may_be_tried_where_the_first_has_no_place(self) -> None:
        job = workload(group("", group("a", least=1), group("b", least=2), groups=1), "aabb")
        found = [names(chunk) for chunk in next_chunks(job, job.pods[:1], job.pods[1:])]
        assert found == [["b2", "b3"], ["a1"]]

    def test_other_groups_may_be_tried_where_a_kind_of_them_has_no_place(self) -> None:
        tree = group("", *(group(name, least=1) for name in "abcd"), groups=2)
        gang = workload(tree, "abcd")
        large = Demand(devices=4, milli=1000)
        pods = [replace(pod, demand=large) if pod.group in "ac" else pod for pod in gang.pods]
        chunks = [names(chunk) for chunk in next_chunks(gang, (), pods)]
        assert chunks == [["a0", "b1"], ["a0", "c2"], ["b1", "d3"]]
        assert [names(chunk) for chunk in next_chunks(gang, (), gang.pods)] == [["a0", "b1"]]

    def test_what_may_be_tried_instead_is_legal(self) -> None:
        rng = Random(1)
        for _ in range(300):
            kinds = [rng.randint(1, 3) for _ in "abcdef"]
            inner = [group(name, least=rng.randint(1, 2)) for name in "abcdef"]
            tree = group(
                "",
                group("x", *inner[:3], groups=rng.randint(0, 3), least=rng.randint(0, 4)),
                group("z", *inner[3:], groups=rng.randint(0, 3)),
                groups=rng.randint(0, 2),
                least=rng.randint(0, 5),
            )
            gang = workload(tree, "".join(name * rng.randint(0, 3) for name in "abcdef"))
            pods = [
                replace(pod, demand=Demand(devices=kinds["abcdef".index(pod.group)], milli=1000))
                for pod in gang.pods
            ]
            for chunk in next_chunks(gang, (), pods):
                assert chunk
                assert is_satisfied(gang, chunk)

    def test_nested_groups_start_from_the_leaves(self) -> None:
        tree = group(
            "",
            group("left", group("a", least=1), group("b", least=1), groups=2),
            group("right", group("c", least=1), group("d", least=1), groups=2),
            groups=1,
        )
        job = workload(tree, "abcd")
        assert names(next_chunk(job, (), job.pods)) == ["a0", "b1"]
        assert not is_satisfied(job, (job.pods[0], job.pods[2]))


class TestWhatMayLeave:
    def test_surplus_leaves_alone_and_the_rest_goes_whole(self) -> None:
        gang = workload(None, "....", least=3)
        assert names(unit_of(gang, gang.pods, gang.pods[1])) == [".1"]
        assert names(unit_of(gang, gang.pods[:3], gang.pods[1])) == [".0", ".1", ".2"]

    def test_surplus_group_leaves_whole(self) -> None:
        job = workload(REPLICAS, "aabb")
        assert names(unit_of(job, job.pods, job.pods[3])) == ["b2", "b3"]

    def test_last_group_is_everything(self) -> None:
        job = workload(REPLICAS, "aa")
        assert names(unit_of(job, job.pods, job.pods[0])) == ["a0", "a1"]

    def test_surplus_pod_of_a_needed_group_leaves_alone(self) -> None:
        both = workload(group("", group("a", least=1), group("b", least=1), groups=2), "aab")
        assert names(unit_of(both, both.pods, both.pods[0])) == ["a0"]
        assert names(unit_of(both, both.pods, both.pods[2])) == ["a0", "a1", "b2"]

    def test_smallest_group_around_the_pod_goes(self) -> None:
        tree = group(
            "",
            group("left", group("a", least=1), group("b", least=1), groups=2),
            group("right", group("c", least=1), group("d", least=1), groups=2),
            groups=1,
        )
        job = workload(tree, "abcd")
        assert names(unit_of(job, job.pods, job.pods[3])) == ["c2", "d3"]


class TestDecisions:
    def test_elastic_tree_starts_its_minimum_and_grows_while_there_is_room(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=3)
        cluster.project("a", 3)
        cluster.job("job", "a", pods=4, min=2, groups=["a", "a", "b", "b"], tree=REPLICAS)
        assert counts(decide(cluster.snapshot())) == {("job", "reserved"): 2}
        cluster.node("n1", gpus=1)
        assert counts(decide(cluster.snapshot())) == {("job", "reserved"): 4}

    def test_nothing_starts_of_a_tree_that_lacks_room_for_its_minimum(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=3)
        cluster.project("a", 4)
        both = group("", group("a", least=2), group("b", least=2), least=4, groups=2)
        cluster.job("job", "a", pods=4, min=4, groups=["a", "a", "b", "b"], tree=both)
        assert not statuses(decide(cluster.snapshot()))

    def test_higher_order_goes_first(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=1)
        cluster.project("a", 1)
        cluster.job("job", "a", pods=3, min=1, orders=[0, 0, 7])
        assert statuses(decide(cluster.snapshot())) == {"job-2": "reserved"}

    def test_first_surplus_of_one_goes_before_the_second_of_another(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=5)
        cluster.project("a", 5)
        cluster.job("old", "a", pods=4, min=1)
        cluster.job("new", "a", pods=4, min=1)
        assert counts(decide(cluster.snapshot())) == {
            ("old", "reserved"): 3,
            ("new", "reserved"): 2,
        }
