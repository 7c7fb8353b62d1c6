"""Random clusters with trees of groups, topologies, pod affinity and instances: what is placed in
one cycle keeps every rule that was asked for."""

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings
from extender.policy.workloads.gangs import groups_of, is_satisfied, leaves_below
from extender.state.model import (
    ANYWHERE,
    Constraints,
    GroupView,
    PlacementRule,
    PodTerm,
    PodView,
    TopologyRule,
)
from tests.support.snapshots import Cluster

RUN = settings(max_examples=150)
ALLOCATE = Settings(stages=("allocate",))
LEVELS = ("zone", "rack")
SLICE = "nvidia.com/mig-1g.5gb"

rules = st.sampled_from([None, "zone", "rack"])
near = st.none() | st.builds(TopologyRule, st.just("t"), rules, rules)
placements: st.SearchStrategy[PlacementRule] = st.sampled_from(
    ["binpack", "spread", "best-fit", "first-fit", "fgd"]
)

sizes: st.SearchStrategy[int | str] = st.sampled_from([0, "0.3", "0.5", 1, 1, 2])


@st.composite
def trees(draw: st.DrawFn) -> tuple[GroupView, list[str]]:
    """A tree of up to three leaves, and the leaf of each pod."""
    children, leaves = [], []
    for name in "xyz"[: draw(st.integers(0, 3))]:
        n_pods = draw(st.integers(1, 3))
        least = draw(st.integers(0, n_pods))
        children.append(GroupView(name=name, min_member=least, topology=draw(near)))
        leaves += [name] * n_pods
    if not children:
        leaves = [""] * draw(st.integers(1, 4))
    n_groups = draw(st.integers(0, len(children))) if children else None
    least = draw(st.integers(1, len(leaves)))
    tree = GroupView(
        name="",
        min_member=least,
        min_groups=n_groups,
        topology=draw(near),
        children=tuple(children),
    )
    return tree, leaves


@st.composite
def worlds(draw: st.DrawFn) -> Cluster:
    cluster = Cluster()
    cluster.topologies = {"t": LEVELS}
    cluster.pool("default", draw(placements))
    cluster.project("a", 100)
    for at in range(draw(st.integers(1, 6))):
        labels = {"zone": draw(st.sampled_from("AB")), "host": f"n{at}"}
        labels["rack"] = draw(st.sampled_from("12"))
        instances = {SLICE: draw(st.integers(0, 3))}
        gpus = draw(st.integers(0, 4))
        cluster.node(f"n{at}", gpus=gpus, labels=labels, free_counted=instances)
    for at in range(draw(st.integers(1, 6))):
        tree, leaves = draw(trees())
        key, app = draw(st.sampled_from(["zone", "host"])), draw(st.sampled_from("pq"))
        term = (PodTerm(key, (("app", app),)),)
        cluster.job(
            f"j{at}",
            "a",
            draw(sizes),
            pods=len(leaves),
            min=tree.min_member,
            tree=tree,
            groups=leaves,
            labels={"app": draw(st.sampled_from("pq"))},
            counted=draw(st.sampled_from([(), (), ((SLICE, 1),)])),
            constraints=draw(
                st.sampled_from(
                    [
                        ANYWHERE,
                        ANYWHERE,
                        Constraints(pod_affinity=term),
                        Constraints(pod_anti_affinity=term),
                    ]
                )
            ),
        )
    return cluster


def placed(plan: Plan) -> dict[str, list[tuple[PodView, str]]]:
    """Pods with their nodes, by workload."""
    found = defaultdict(list)
    for admission in plan.admissions:
        for each in admission.placements:
            found[admission.workload.key].append((each.pod, each.node))
    return found


def started(cluster: Cluster, plan: Plan, ended: set[str]) -> Cluster:
    """The cluster with what the plan placed running, and without the workloads that have ended."""
    after = Cluster(
        nodes=cluster.nodes,
        pools=cluster.pools,
        projects=cluster.projects,
        topologies=cluster.topologies,
    )
    places = {p.pod.uid: p for admission in plan.admissions for p in admission.placements}
    for key, workload in cluster.workloads.items():
        pods = []
        for pod in workload.pods if key not in ended else ():
            place = places.get(pod.uid)
            if place is not None:
                held = {"node": place.node, "cards": place.cards, "started_at": 1}
                pod = replace(pod, state="bound", is_gated=False, **held)  # noqa: PLW2901
                after._hold(place.node, pod, workload.project)
            pods.append(pod)
        if pods:
            after.workloads[key] = replace(workload, pods=tuple(pods))
    return after


def check_groups(cluster: Cluster, where: dict[str, list[tuple[PodView, str]]]) -> None:
    """Minimums and required domains hold for all pods that have a place."""
    for key, pods in where.items():
        workload = cluster.workloads[key]
        assert is_satisfied(workload, [pod for pod, _ in pods])
        assert workload.tree is not None
        for group in groups_of(workload.tree):
            rule = group.topology
            if rule is None or rule.required is None:
                continue
            down_to = LEVELS[: LEVELS.index(rule.required) + 1]
            domains = {
                tuple(cluster.nodes[node].facts.labels[label] for label in down_to)
                for pod, node in pods
                if pod.group in leaves_below(group)
            }
            assert len(domains) <= 1


@RUN
@given(worlds(), st.sets(st.integers(0, 5)))
def test_groups_hold_their_minimums_and_their_required_domains(
    cluster: Cluster, ended: set[int]
) -> None:
    plan = decide(cluster.snapshot(), ALLOCATE)
    check_groups(cluster, placed(plan))
    # What has ended makes room, into which the others grow.
    cluster = started(cluster, plan, {f"ns/j{at}" for at in ended})
    where = placed(decide(cluster.snapshot(), ALLOCATE))
    for key, workload in cluster.workloads.items():
        where[key] += [(pod, pod.node) for pod in workload.pods if pod.node]
    check_groups(cluster, where)


@RUN
@given(worlds())
def test_neighbours_suit_one_another(cluster: Cluster) -> None:
    everyone = [
        each for pods in placed(decide(cluster.snapshot(), ALLOCATE)).values() for each in pods
    ]

    def domain(node: str, term: PodTerm) -> str | None:
        return cluster.nodes[node].facts.labels.get(term.topology_key)

    def meant(term: PodTerm, node: str) -> list[PodView]:
        return [
            pod
            for pod, at in everyone
            if set(term.labels) <= set(pod.labels) and domain(at, term) == domain(node, term)
        ]

    for pod, node in everyone:
        for term in pod.constraints.pod_anti_affinity:
            assert [other for other in meant(term, node) if other is not pod] == []
        for term in pod.constraints.pod_affinity:
            assert meant(term, node)


@RUN
@given(worlds())
def test_cards_and_instances_are_never_overcommitted(cluster: Cluster) -> None:
    plan = decide(cluster.snapshot(), ALLOCATE)
    cards: dict[tuple[str, int], int] = defaultdict(int)
    instances: dict[str, int] = defaultdict(int)
    for admission in plan.admissions:
        for each in admission.placements:
            for card in each.cards:
                cards[each.node, card.index] += card.milli
            instances[each.node] += sum(n for _, n in each.pod.demand.counted)
    assert all(milli <= 1000 for milli in cards.values())
    assert all(n <= cluster.nodes[node].facts.free_counted[SLICE] for node, n in instances.items())


@RUN
@given(worlds())
def test_places_do_not_depend_on_the_order_of_the_lists(cluster: Cluster) -> None:
    first = decide(cluster.snapshot(), ALLOCATE)
    second = decide(cluster.snapshot(is_reversed=True), ALLOCATE)
    assert placed(first) == placed(second)
    assert first.waits == second.waits
