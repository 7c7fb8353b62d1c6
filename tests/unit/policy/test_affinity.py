"""Pod affinity and anti-affinity between pods that run or are placed in the same cycle."""

import dataclasses
from array import array

from msgspec.structs import replace

from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.placement.pod_affinity import PodAffinity
from extender.policy.plan import Plan, Settings
from extender.state.model import ANYWHERE, Bystanders, Constraints, PodTerm
from tests.support.snapshot_job import demand_of
from tests.support.snapshots import Cluster, allocated, counts, statuses

ZONE, HOST = "zone", "kubernetes.io/hostname"


def cluster_of(*zones: str, gpus: int = 2) -> Cluster:
    """Nodes n0, n1, ... in these zones."""
    cluster = Cluster()
    cluster.project("a", 100)
    for at, zone in enumerate(zones):
        cluster.node(f"n{at}", gpus=gpus, labels={ZONE: zone, HOST: f"n{at}"})
    return cluster


def beside(key: str, **labels: str) -> Constraints:
    return Constraints(pod_affinity=(PodTerm(key, tuple(labels.items())),))


def apart(key: str, **labels: str) -> Constraints:
    return Constraints(pod_anti_affinity=(PodTerm(key, tuple(labels.items())),))


def allocated_beside(cluster: Cluster, zone: str) -> Plan:
    """The plan while a pod `app=db` without GPUs runs in the zone."""
    there = Bystanders("ns", (("app", "db"),), {ZONE: zone}, 1)
    snapshot = dataclasses.replace(cluster.snapshot(), bystanders=(there,))
    return decide(snapshot, Settings(stages=("allocate",)))


def nodes(plan: Plan) -> dict[str, str]:
    return {p.pod.name: p.node for a in plan.admissions for p in a.placements}


def test_affinity_goes_where_such_a_pod_runs() -> None:
    cluster = cluster_of("east", "west", "west")
    cluster.job("db", "a", 2, on="n2", labels={"app": "db"})
    cluster.job("web", "a", constraints=beside(ZONE, app="db"))
    assert nodes(allocated(cluster)) == {"web-0": "n1"}


def test_affinity_waits_where_no_such_pod_runs() -> None:
    cluster = cluster_of("east", "west")
    cluster.job("web", "a", constraints=beside(ZONE, app="db"))
    plan = allocated(cluster)
    assert not statuses(plan)
    assert plan.waits["ns/web"].reason is Reason.POD_AFFINITY_UNMET


def test_affinity_is_met_by_a_pod_without_gpus() -> None:
    cluster = cluster_of("east", "west")
    cluster.job("web", "a", constraints=beside(ZONE, app="db"))
    assert nodes(allocated_beside(cluster, "west")) == {"web-0": "n1"}


def test_anti_affinity_keeps_away_from_a_pod_without_gpus() -> None:
    cluster = cluster_of("east", "west")
    cluster.job("web", "a", 2, constraints=apart(ZONE, app="db"))
    assert nodes(allocated_beside(cluster, "east")) == {"web-0": "n1"}


def test_the_first_of_its_kind_joins_a_pod_without_gpus_that_is_like_it() -> None:
    cluster = cluster_of("east", "west")
    cluster.job("db", "a", labels={"app": "db"}, constraints=beside(ZONE, app="db"))
    assert nodes(allocated_beside(cluster, "west")) == {"db-0": "n1"}


def test_affinity_to_ones_own_kind_lets_the_first_choose() -> None:
    cluster = cluster_of("east", "west", "west")
    alike = beside(ZONE, app="db")
    cluster.job("db", "a", pods=4, labels={"app": "db"}, constraints=alike)
    assert set(nodes(allocated(cluster)).values()) == {"n1", "n2"} or not nodes(allocated(cluster))
    cluster.job("pair", "a", pods=2, labels={"app": "cache"}, constraints=beside(ZONE, app="cache"))
    placed = nodes(allocated(cluster))
    assert len({placed["pair-0"], placed["pair-1"]} & {"n0"}) in (0, 1)


def test_affinity_is_met_by_a_pod_placed_in_the_same_cycle() -> None:
    cluster = cluster_of("east", "west")
    cluster.job("fill", "a", 2, on="n0")
    cluster.job("db", "a", labels={"app": "db"})
    cluster.job("web", "a", constraints=beside(HOST, app="db"))
    assert nodes(allocated(cluster)) == {"db-0": "n1", "web-0": "n1"}


def test_larger_workers_are_placed_beside_their_leader_in_one_gang() -> None:
    cluster = cluster_of("east", "west", gpus=5)
    cluster.job("fill", "a", 5, on="n0")
    cluster.job("team", "a", 2, pods=3, constraints=beside(HOST, role="leader"))
    team = cluster.workloads["ns/team"]
    leader = replace(
        team.pods[2],
        demand=demand_of(1),
        labels=(("role", "leader"),),
        constraints=ANYWHERE,
    )
    cluster.workloads["ns/team"] = replace(team, pods=(*team.pods[:2], leader))
    assert nodes(allocated(cluster)) == dict.fromkeys(("team-0", "team-1", "team-2"), "n1")


def test_anti_affinity_keeps_away_from_running_pods() -> None:
    cluster = cluster_of("east", "east", "west")
    cluster.job("db", "a", on="n0", labels={"app": "db"})
    cluster.job("web", "a", constraints=apart(ZONE, app="db"))
    assert nodes(allocated(cluster)) == {"web-0": "n2"}


def test_anti_affinity_of_running_pods_keeps_others_away() -> None:
    cluster = cluster_of("east", "east", "west")
    cluster.job("quiet", "a", on="n0", constraints=apart(ZONE, app="noisy"))
    cluster.job("noisy", "a", labels={"app": "noisy"})
    assert nodes(allocated(cluster)) == {"noisy-0": "n2"}


def test_it_keeps_one_away_that_is_alike_but_for_its_labels_to_those_placed_before() -> None:
    cluster = cluster_of("east", "west", gpus=5)
    cluster.job("quiet", "a", on="n0", constraints=apart(HOST, app="loud"))
    for at in range(2):
        cluster.job(f"plain{at}", "a")
    cluster.job("x-loud", "a", labels={"app": "loud"})
    found = nodes(allocated(cluster))
    assert found == {"plain0-0": "n0", "plain1-0": "n0", "x-loud-0": "n1"}


def test_it_keeps_one_away_that_is_alike_but_for_its_labels_to_others_of_its_gang() -> None:
    cluster = cluster_of("east", "west", gpus=5)
    cluster.job("quiet", "a", on="n0", constraints=apart(HOST, app="loud"))
    cluster.job("gang", "a", pods=3)
    gang = cluster.workloads["ns/gang"]
    loud = replace(gang.pods[2], labels=(("app", "loud"),))
    cluster.workloads["ns/gang"] = replace(gang, pods=(*gang.pods[:2], loud))
    assert nodes(allocated(cluster))["gang-2"] == "n1"


def test_anti_affinity_spreads_the_pods_of_one_workload() -> None:
    cluster = cluster_of("east", "east", "west")
    cluster.job(
        "web", "a", pods=4, min=1, labels={"app": "web"}, constraints=apart(HOST, app="web")
    )
    assert sorted(nodes(allocated(cluster)).values()) == ["n0", "n1", "n2"]


def test_gang_waits_when_anti_affinity_leaves_too_few_domains() -> None:
    cluster = cluster_of("east", "east", "west")
    cluster.job("web", "a", pods=3, labels={"app": "web"}, constraints=apart(ZONE, app="web"))
    assert not statuses(allocated(cluster))
    cluster.job("pair", "a", pods=2, labels={"app": "db"}, constraints=apart(ZONE, app="db"))
    assert counts(allocated(cluster)) == {("pair", "reserved"): 2}


def test_terms_speak_of_the_own_namespace_only() -> None:
    cluster = cluster_of("east")
    cluster.job("db", "a", on="n0", labels={"app": "db"})
    held = cluster.workloads["ns/db"]
    elsewhere = replace(held.pods[0], namespace="other")
    cluster.workloads["ns/db"] = replace(held, pods=(elsewhere,))
    cluster.job("web", "a", constraints=apart(HOST, app="db"))
    assert nodes(allocated(cluster)) == {"web-0": "n0"}


def test_place_left_by_a_hated_neighbour_is_waited_for() -> None:
    cluster = cluster_of("east")
    cluster.job("db", "a", on="n0", labels={"app": "db"}, terminating=True)
    cluster.job("web", "a", constraints=apart(HOST, app="db"))
    assert statuses(allocated(cluster)) == {"web-0": "nominated"}


def test_nodes_without_the_label_are_in_no_domain() -> None:
    cluster = cluster_of("east")
    cluster.node("bare", gpus=2)
    cluster.job("db", "a", on="n0", labels={"app": "db"})
    cluster.job("web", "a", constraints=apart(ZONE, app="db"))
    assert nodes(allocated(cluster)) == {"web-0": "bare"}
    cluster.job("near", "a", constraints=beside(ZONE, app="db"))
    assert nodes(allocated(cluster))["near-0"] == "n0"


def test_promised_pod_counts_once() -> None:
    cluster = cluster_of("east", "west")
    cluster.job(
        "web",
        "a",
        on="n0",
        state="nominated",
        labels={"app": "web"},
        constraints=apart(ZONE, app="web"),
    )
    cluster.job(
        "more", "a", pods=2, min=1, labels={"app": "web"}, constraints=apart(ZONE, app="web")
    )
    assert statuses(allocated(cluster)) == {"web-0": "reserved", "more-0": "reserved"}


def test_place_kept_for_a_moved_pod_counts_as_taken() -> None:
    cluster = cluster_of("east", "west")
    cluster.job("db", "a", on="n0", labels={"app": "db"}, terminating=True)
    moved = cluster.workloads["ns/db"]
    pod = replace(moved.pods[0], next_node="n1", next_cards=moved.pods[0].cards)
    cluster.workloads["ns/db"] = replace(moved, pods=(pod,))
    cluster.job("web", "a", constraints=apart(ZONE, app="db"))
    assert statuses(allocated(cluster)) == {"web-0": "nominated"}
    assert nodes(allocated(cluster)) == {"web-0": "n0"}


def test_pod_that_is_counted_already_does_not_bar_itself() -> None:
    cluster = cluster_of("east", "east")
    alone = apart(ZONE, app="web")
    cluster.job("web", "a", on="n0", labels={"app": "web"}, constraints=alone)
    snapshot = cluster.snapshot()
    census, pod = PodAffinity(snapshot), cluster.workloads["ns/web"].pods[0]
    assert census.can_stay(pod, 0, "later")
    census.change(1, replace(pod, uid="other"), 0, 1)
    assert census.can_stay(pod, 0, "now")
    assert not census.can_stay(pod, 0, "later")


def test_a_pod_cannot_stay_once_a_pod_that_its_affinity_requires_is_evicted() -> None:
    cluster = cluster_of("east")
    cluster.job("db", "a", on="n0", labels={"app": "db"})
    cluster.job("web", "a", on="n0", constraints=beside(ZONE, app="db"))
    census = PodAffinity(cluster.snapshot())
    web, db = (cluster.workloads[f"ns/{name}"].pods[0] for name in ("web", "db"))
    assert census.can_stay(web, 0, "later")
    census.change(0, db, 0, -1)
    assert not census.can_stay(web, 0, "later")
    assert census.can_stay(web, 0, "now")


def test_a_pod_evicted_in_the_same_cycle_does_not_satisfy_affinity() -> None:
    cluster = cluster_of("east")
    cluster.job("db", "a", on="n0", labels={"app": "db"})
    cluster.job("web", "a", constraints=beside(ZONE, app="db"))
    census, here = PodAffinity(cluster.snapshot()), array("i", [0])
    web, db = (cluster.workloads[f"ns/{name}"].pods[0] for name in ("web", "db"))
    assert list(census.allowed(web, here, "now")) == [0]
    census.change(0, db, 0, -1)
    assert not census.allowed(web, here, "now")
