"""Random clusters, what must hold after every cycle, and how one cycle leads to the next."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.kinds import CardShare, Row
from extender.policy.plan import Plan
from extender.state.model import PodView, WorkloadView
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster

CardKey = tuple[str, int]

_SIZES: list[int | str] = ["0.25", "0.5", 1, 1, 1, 2, 3]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Nodes, one or two departments, up to four projects, jobs that run and jobs that wait."""
    cluster = Cluster()
    for at in range(draw(st.integers(1, 4))):
        cluster.node(f"n{at}", gpus=draw(st.integers(1, 4)))
    n_departments = draw(st.integers(1, 2))
    for at in range(n_departments):
        limit = draw(st.none() | st.integers(2, 8))
        cluster.department(f"d{at}", draw(st.integers(0, 6)), limit=limit)
    names = [f"p{at}" for at in range(draw(st.integers(2, 4)))]
    for name in names:
        cluster.project(
            name,
            draw(st.integers(0, 4)),
            department=f"d{draw(st.integers(0, n_departments - 1))}",
            weight=draw(st.integers(0, 3)),
            limit=draw(st.none() | st.integers(1, 8)),
        )
    for at in range(draw(st.integers(1, 10))):
        gpus: int | str = draw(st.sampled_from(_SIZES))
        pods = draw(st.sampled_from([1, 1, 2, 3, 4]))
        waiting = draw(st.booleans())
        least = draw(st.integers(1, pods))
        cluster.job(
            f"j{at}",
            draw(st.sampled_from(names)),
            gpus,
            pods=pods,
            min=least,
            max=draw(st.none() | st.integers(least, pods)),
            user=draw(st.sampled_from(["", "", "ann", "bob"])),
            on=() if waiting else _places(draw, cluster, gpus, pods),
            ran=draw(st.integers(0, 1000)),
            kind=draw(st.sampled_from(["training", "training", "training", "build"]))
            if waiting
            else "training",
        )
    return cluster


@st.composite
def crowded(draw: st.DrawFn) -> Cluster:
    """Borrowers without quota fill most of the cards; one workload of the owner waits."""
    cluster = Cluster()
    for at in range(draw(st.integers(1, 4))):
        cluster.node(f"n{at}", gpus=draw(st.integers(1, 4)))
    cluster.department("d0", draw(st.integers(4, 8)))
    cluster.department("d1", draw(st.integers(0, 2)))
    cluster.project("owner", 6, department="d0")
    cluster.project("sibling", 0, department="d0")
    cluster.project("stranger", 0, department="d1")
    for at in range(draw(st.integers(2, 12))):
        gpus: int | str = draw(st.sampled_from(_SIZES))
        pods = draw(st.sampled_from([1, 1, 1, 2, 3]))
        on = _places(draw, cluster, gpus, pods)
        if on:
            cluster.job(
                f"j{at}",
                draw(st.sampled_from(["sibling", "stranger"])),
                gpus,
                pods=pods,
                min=draw(st.integers(1, pods)),
                on=on,
                ran=draw(st.integers(0, 1000)),
                cpu=draw(st.integers(0, 2)),
            )
    pods = draw(st.integers(1, 3))
    cluster.job("claim", "owner", draw(st.sampled_from(_SIZES)), pods=pods)
    return cluster


def _places(draw: st.DrawFn, cluster: Cluster, gpus: int | str, pods: int) -> list[str]:
    """Nodes for all pods, or none when they don't all have cards of their own."""
    free = {name: sum(m == 1000 for m in node.free) for name, node in cluster.nodes.items()}
    need = 1 if isinstance(gpus, str) else gpus
    chosen = []
    for _ in range(pods):
        fitting = [name for name, n_cards in free.items() if n_cards >= need]
        if not fitting:
            return []
        name = draw(st.sampled_from(fitting))
        free[name] -= need
        chosen.append(name)
    return chosen


@dataclass
class Usage:
    """What every card and every queue holds, at one moment."""

    cards: Counter[CardKey] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    fixed: Counter[str] = field(default_factory=Counter)

    def add(self, cluster: Cluster, workload: WorkloadView, pod: PodView) -> None:
        for card in pod.cards:
            self.cards[pod.node, card.index] += card.milli
        project = cluster.projects[workload.project]
        for queue in (project.name, project.parent):
            self.queues[queue] += pod.held_milli
            if not workload.is_preemptible:
                self.fixed[queue] += pod.held_milli


def apply(cluster: Cluster, plan: Plan) -> Cluster:
    """The next cycle's cluster: what was leaving is gone and made again, the plan is carried out.

    Reserved pods are bound, nominated ones hold their promise, evicted ones are being deleted, and
    so are moved ones; their successors hold nominations.
    """
    placed = {
        p.pod.uid: (admission.state, p.node, p.cards)
        for admission in plan.admissions
        for p in admission.placements
    }
    evicted = {eviction.pod.uid for eviction in plan.evictions}
    moved = {move.placement.pod.uid: move.placement for move in plan.moves}
    after = Cluster(
        nodes=cluster.nodes,
        pools=cluster.pools,
        departments=cluster.departments,
        projects=cluster.projects,
    )
    for key, workload in cluster.workloads.items():
        pods = []
        for pod in workload.pods:
            if pod.is_terminating and pod.next_node:
                pods.append(_promised(pod))
            elif pod.is_terminating or (key in plan.drops and pod.state == "nominated"):
                pods.append(_waiting(pod))
            elif pod.uid in moved:
                to = moved[pod.uid]
                pods.append(
                    replace(pod, is_terminating=True, next_node=to.node, next_cards=to.cards)
                )
            elif pod.uid in evicted:
                pods.append(replace(pod, is_terminating=True))
            elif pod.uid in placed:
                state, node, cards = placed[pod.uid]
                state_after = "bound" if state == "reserved" else "nominated"
                pods.append(
                    replace(pod, state=state_after, node=node, cards=cards, started_at=NOW_S - 1)
                )
            else:
                pods.append(pod)
        after.workloads[key] = replace(workload, pods=tuple(pods))
    _write_rows(after)
    return after


def _waiting(pod: PodView) -> PodView:
    no_cards: tuple[CardShare, ...] = ()
    return replace(pod, state="gated", node="", cards=no_cards, is_terminating=False, started_at=0)


def _promised(pod: PodView) -> PodView:
    """The successor of a pod that was moved."""
    return replace(
        pod,
        state="nominated",
        is_gated=True,
        node=pod.next_node,
        cards=pod.next_cards,
        next_node="",
        next_cards=(),
        is_terminating=False,
        started_at=0,
    )


def _write_rows(cluster: Cluster) -> None:
    rows: dict[str, list[Row]] = {name: [] for name in cluster.nodes}
    for workload in cluster.workloads.values():
        for pod in workload.pods:
            places = [(pod.node, pod.cards, pod.state), (pod.next_node, pod.next_cards, "")]
            for node, cards, state in places:
                if node:
                    rows[node].append(
                        Row(
                            uid=pod.uid,
                            namespace=pod.namespace,
                            name=pod.name,
                            cards=list(cards),
                            state="bound" if state == "bound" else "nominated",
                        )
                    )
    cluster.nodes = {
        name: type(node)(node.facts, node.cards, node.free, rows[name])
        for name, node in cluster.nodes.items()
    }


def usage_of(cluster: Cluster, *, is_leaving_counted: bool, is_promised_counted: bool) -> Usage:
    """What the pods of the cluster hold together."""
    usage = Usage()
    for workload in cluster.workloads.values():
        for pod in workload.pods:
            is_counted = (is_leaving_counted or not pod.is_terminating) and (
                is_promised_counted or pod.state != "nominated"
            )
            if pod.node and is_counted:
                usage.add(cluster, workload, pod)
            if pod.next_node and is_promised_counted:
                usage.add(cluster, workload, _promised(pod))
    return usage


def check_invariants(before: Cluster, after: Cluster) -> None:
    """No card, limit, quota or gang is broken, nor how many of a workload may run at once; what was
    so before may stay but not grow."""
    was = usage_of(before, is_leaving_counted=False, is_promised_counted=True)
    now = usage_of(after, is_leaving_counted=True, is_promised_counted=False)
    later = usage_of(after, is_leaving_counted=False, is_promised_counted=True)
    assert all(milli <= 1000 for milli in now.cards.values())
    assert all(milli <= 1000 for milli in later.cards.values())
    for view in (*after.departments.values(), *after.projects.values()):
        figures = view.pools["default"]
        assert later.queues[view.name] <= max(figures.gpu.limit, was.queues[view.name])
        assert later.fixed[view.name] <= max(figures.gpu.quota, was.fixed[view.name])
    for key, workload in after.workloads.items():
        n_live = sum(map(_is_live, workload.pods))
        n_was = sum(map(_is_live, before.workloads[key].pods))
        assert n_live == 0 or n_live >= min(workload.min_member, n_was or workload.min_member)
        assert n_live <= max(workload.max_concurrent_pods or n_live, n_was)


def _is_live(pod: PodView) -> bool:
    return bool(pod.next_node) or (bool(pod.node) and not pod.is_terminating)
