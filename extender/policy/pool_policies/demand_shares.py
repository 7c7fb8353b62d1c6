"""The division of policy `demand-weighted`; its rules are in `demand_weighted`."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.kernels import shares
from extender.policy.queues.fairshare import children_first, fit_weights, granules
from extender.policy.queues.tree import PoolQueues, Queue, held_amounts, held_pool, pod_amounts
from extender.policy.session import Session
from extender.policy.workloads.gangs import least_pods
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape, shapes_of
from extender.state.model import GPU, Constraints, PodView, WorkloadView
from extender.state.nodes import NodeTable


@dataclass(slots=True)
class Claim:
    """What a queue asks for, in milli: all of it, the non-preemptible part, and the least it can
    use at once. `is_aside`: what it would get is of no use to it."""

    total: int = 0
    np: int = 0
    smallest: int = 0
    is_aside: bool = False


def divide_by_claims(session: Session, queues: PoolQueues) -> None:
    """Set the GPU share of every queue of the pool.

    Each queue put aside costs a division; running work is read only where one might be.
    """
    everyone = children_first(queues.roots)
    claims = _read_claims(session, queues, everyone)
    running: Mapping[Queue, int] | None = None
    while True:
        _divide(queues.roots, queues.capacity[GPU], _add_up(everyone, claims))
        useless = [q for q in everyone if not q.children and _is_useless(q, claims[q])]
        if useless and running is None:
            running = _smallest_running(session, queues)
            for queue, milli in running.items():
                claims[queue].smallest = min(claims[queue].smallest, milli)
            continue
        if not useless:
            return
        # Who runs goes on: what is taken from him now would be his again in the next cycle.
        last = max(useless, key=lambda queue: (queue.allocated[GPU] == 0, queue.age_key))
        claims[last].is_aside = True


def _is_useless(queue: Queue, claim: Claim) -> bool:
    return not claim.is_aside and claim.total > claim.np and queue.share[GPU] < claim.smallest


def _read_claims(
    session: Session, queues: PoolQueues, everyone: Iterable[Queue]
) -> dict[Queue, Claim]:
    """What the leaves run, and what of their waiting work could ever be placed."""
    claims = {queue: Claim() for queue in everyone}
    for queue, claim in claims.items():
        if not queue.children:
            claim.total, claim.np = queue.allocated[GPU], queue.allocated_np[GPU]
    if queues.smallest_card_mib < queues.largest_card_mib:
        _level(session, queues, claims)
    fits = _Fits(session, queues.pool)
    for pending in session.pending:
        leaf = queues.leaf_of(pending.workload) if queues.pool in pending.pools else None
        if leaf is None or not fits.could_ever(pending):
            continue
        amounts = [_size(queues, pod) for pod in pending.waiting if fits.anywhere(pod)]
        first = sum(_size(queues, pod) for pod in pending.chunk)
        # More of what runs here is of no use without what runs.
        first += sum(_sizes(session, queues, pending.workload)[0]) if first else 0
        claim = claims[leaf]
        claim.total += sum(amounts)
        if not pending.workload.is_preemptible:
            claim.np += sum(amounts)
        if first:
            claim.smallest = min(claim.smallest or first, first)
    for leaf, claim in claims.items():
        if not leaf.children:
            # Until running work is read, what only runs counts as one task.
            claim.smallest = claim.smallest or claim.total
            may_run = max(min(claim.np, leaf.np_quota[GPU]), leaf.allocated_np[GPU])
            claim.total = min(claim.total - claim.np + may_run, leaf.limit[GPU])
            claim.np = min(may_run, claim.total)
    return claims


def _level(session: Session, queues: PoolQueues, claims: Mapping[Queue, Claim]) -> None:
    """Count what runs as if it waited: else claims, and so shares, would change with the card that
    a pod is given, and what one cycle starts the next would stop."""
    for queue in claims:
        queue.granule = MILLI_PER_GPU
    for workload in session.snapshot.workloads.values():
        here = _held_here(session, queues, workload)
        leaf = queues.leaf_of(workload) if here else None
        if leaf is None:
            continue
        more = sum(_size(queues, pod) - milli for pod, milli in here)
        claims[leaf].total += more
        if not workload.is_preemptible:
            claims[leaf].np += more
        _round_by(queues, leaf, [pod for pod, _ in here])
    for pending in session.pending:
        leaf = queues.leaf_of(pending.workload) if queues.pool in pending.pools else None
        if leaf is not None:
            _round_by(queues, leaf, pending.waiting)


def _round_by(queues: PoolQueues, leaf: Queue, pods: Iterable[PodView]) -> None:
    """Shares of the queue have to be of use to these pods."""
    granule = gcd(MILLI_PER_GPU, *{_size(queues, pod) for pod in pods})
    for queue in leaf.chain:
        queue.granule = gcd(queue.granule, granule)


def _add_up(
    everyone: Iterable[Queue], claims: Mapping[Queue, Claim]
) -> Mapping[Queue, tuple[int, int]]:
    """(claim, non-preemptible part) of every queue, of those put aside the latter alone."""
    found: dict[Queue, tuple[int, int]] = {}
    for queue in everyone:
        if not queue.children:
            claim = claims[queue]
            found[queue] = claim.np if claim.is_aside else claim.total, claim.np
            continue
        below = [found[child] for child in queue.children]
        total = min(sum(each for each, _ in below), queue.limit[GPU])
        found[queue] = total, min(sum(np for _, np in below), total)
    return found


def _divide(
    queues: Sequence[Queue], capacity: int, claims: Mapping[Queue, tuple[int, int]]
) -> None:
    """Divide among queues of one parent, and each one's part among those below it."""
    queues = sorted(queues, key=lambda queue: queue.age_key)
    for queue in queues:
        queue.share[GPU] = 0
    fixed = [claims[queue][1] for queue in queues]
    left = _grant(queues, fixed, fixed, capacity)
    weights = [claims[queue][0] * queue.figures.gpu.weight for queue in queues]
    rooms = [claims[queue][0] - claims[queue][1] for queue in queues]
    _grant(queues, weights, rooms, left)
    for queue in queues:
        if queue.children:
            _divide(queue.children, queue.share[GPU], claims)


def _grant(
    queues: Sequence[Queue], weights: Sequence[int], rooms: Sequence[int], surplus: int
) -> int:
    """Add to the shares by weight, none more than its room; returns what is left."""
    grants = array("q", bytes(8 * len(queues)))
    weights, rooms = array("q", fit_weights(weights)), array("q", rooms)
    left = shares.divide(surplus, weights, rooms, granules(queues, GPU), grants)
    for queue, grant in zip(queues, grants, strict=True):
        queue.share[GPU] += grant
    return left


def _smallest_running(session: Session, queues: PoolQueues) -> dict[Queue, int]:
    """The least milli by queue that running work in the pool can hold; one pass over all work."""
    found: dict[Queue, int] = {}
    for workload in session.snapshot.workloads.values():
        sizes, n_elsewhere = _sizes(session, queues, workload)
        leaf = queues.leaf_of(workload) if sizes else None
        if leaf is None:
            continue
        least = max(1, least_pods(workload) - n_elsewhere)
        if milli := sum(sizes[:least]):
            found[leaf] = min(found.get(leaf, milli), milli)
    return found


def _sizes(
    session: Session, queues: PoolQueues, workload: WorkloadView
) -> tuple[Sequence[int], int]:
    """What each of its pods in the pool counts, in milli, the least first, and how many it has in
    others."""
    here = _held_here(session, queues, workload)
    n_live = sum(1 for pod in workload.pods if pod.node and not pod.is_terminating)
    if session.is_served(workload.key):
        n_live += len(session.placed_now(workload.key))
    return sorted(_size(queues, pod) for pod, _ in here), n_live - len(here)


def _held_here(
    session: Session, queues: PoolQueues, workload: WorkloadView
) -> list[tuple[PodView, int]]:
    """Its pods in the pool with what they hold, in milli; with those that are given places in this
    cycle."""
    snapshot, nodes, pool = session.snapshot, session.snapshot.nodes, queues.pool
    found = [
        (pod, held_amounts(pod, queues.smallest_card_mib)[GPU])
        for pod in workload.pods
        if pod.node and not pod.is_terminating and held_pool(snapshot, pod) == pool
    ]
    if session.is_served(workload.key):
        found += [
            (placement.pod, placement.amounts[GPU])
            for placement in session.placed_now(workload.key)
            if nodes.pool[nodes.cards.ix[placement.node]] == pool
        ]
    return found


def _size(queues: PoolQueues, pod: PodView) -> int:
    """What the pod counts, in milli: the same whether it waits or runs, on whatever card."""
    return pod_amounts(pod.demand, queues.smallest_card_mib)[GPU]


@dataclass(slots=True)
class _Fits:
    """What could be placed in a pool if nothing else ran there."""

    session: Session
    pool: str
    _known: dict[tuple[Demand, int], tuple[Constraints, int]] = field(default_factory=dict)

    def could_ever(self, pending: Pending) -> bool:
        """Whether its next chunk could, shape by shape."""
        return all(self._most(shape) >= shape.count for shape in shapes_of(pending.chunk))

    def anywhere(self, pod: PodView) -> bool:
        """Whether one such pod could."""
        return self._most(Shape(pod.demand, pod.constraints, 1)) > 0

    def _most(self, shape: Shape) -> int:
        """How many pods of the shape the empty pool holds. Constraints are kept beside their ids,
        so that an id can't be used again."""
        key = shape.demand, id(shape.constraints)
        if key not in self._known:
            places, nodes = self.session.places, self.session.snapshot.nodes
            usable = places.matcher.candidates(self.pool, shape.constraints)
            most = sum(_most_on(nodes, ix, shape.demand) for ix in usable)
            self._known[key] = shape.constraints, most
        return self._known[key][1]


def _most_on(nodes: NodeTable, ix: int, demand: Demand) -> int:
    """How many pods the empty node holds."""
    bounds = [
        has // asked
        for has, asked in (
            (nodes.cpu_milli[ix], demand.cpu_milli),
            (nodes.memory_mib[ix], demand.memory_mib),
        )
        if asked
    ]
    if demand.devices:
        mib = nodes.cards.card_mib[ix]
        milli = share_milli(demand.gpu_memory_mib, mib) if demand.gpu_memory_mib else demand.milli
        n_cards = nodes.cards.capacity_milli[ix] // MILLI_PER_GPU
        per_card = MILLI_PER_GPU // milli
        bounds.append(n_cards * per_card // demand.devices if n_cards >= demand.devices else 0)
    return min(bounds, default=1 << 20)
