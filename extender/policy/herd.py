"""The pods of one node pool that may be told to leave, as flat arrays that the kernel reads.

They are preemptible work that is bound whole, of which nothing is being moved, and that is not
protected. A workload gives its surplus pod by pod; what is left then goes in the units that
`groups.unit_of` names. Arrays are laid out once a cycle; what leaves is marked, and what its
workload could still give is worked out again.
"""

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.api.demand import Demand
from extender.policy.groups import has_topology, is_satisfied, unit_of
from extender.policy.loss import seconds_lost
from extender.policy.queues import RESOURCES, PoolQueues, Queue, held_amounts
from extender.policy.session import Session
from extender.state.model import NOTHING, Amounts, Constraints, PodView, WorkloadView

#: Ages are counted down from here, so that the older workload has the larger figure.
_EPOCH_END: Final = (1 << 33) - 1


@dataclass(slots=True, eq=False)
class Herd:
    """Pods p in order of their nodes, workloads w, queues q; on a node those to go first are first.

    `start` is int32[n_nodes + 1]: the pods of node ix are start[ix]..start[ix + 1]. By pod: `owner`
    its w, `turn` its place among its workload's, `shape` its index in `shapes`, `card_start` (one
    more than pods) into `card_ix` and `card_milli`, `amounts` (int64[3 * n]), `lost` milli-GPU-
    seconds, `is_here` 1 while it may be chosen, `is_core` 1 where it is no surplus though its
    workload has some, `may_move` 1 where somebody makes it again. By workload: `surplus` pods that
    may go one by one, `whole_lost` and `whole_amounts` of all that it may still give, `is_stuck` 1
    where it can't go whole, `priority`, `age` (the larger the older), `queue`. By queue: `has`
    (int64[3 * n]) is what it holds, `had` what it held at first. `nobody` has a 0 for every w.
    """

    pods: list[PodView] = field(default_factory=list)
    workloads: list[WorkloadView] = field(default_factory=list)
    leaves: list[Queue] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    n_live: list[int] = field(default_factory=list)
    by_key: dict[str, int] = field(default_factory=dict)
    shapes: list[tuple[Demand, Constraints]] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    queue_ix: dict[Queue, int] = field(default_factory=dict)
    most_pods: int = 0
    start: "array[int]" = field(default_factory=lambda: array("i", [0]))
    owner: "array[int]" = field(default_factory=lambda: array("i"))
    shape: "array[int]" = field(default_factory=lambda: array("i"))
    turn: "array[int]" = field(default_factory=lambda: array("i"))
    card_start: "array[int]" = field(default_factory=lambda: array("i", [0]))
    card_ix: "array[int]" = field(default_factory=lambda: array("i"))
    card_milli: "array[int]" = field(default_factory=lambda: array("i"))
    amounts: "array[int]" = field(default_factory=lambda: array("q"))
    lost: "array[int]" = field(default_factory=lambda: array("q"))
    is_here: bytearray = field(default_factory=bytearray)
    is_core: bytearray = field(default_factory=bytearray)
    may_move: bytearray = field(default_factory=bytearray)
    surplus: "array[int]" = field(default_factory=lambda: array("i"))
    whole_lost: "array[int]" = field(default_factory=lambda: array("q"))
    whole_amounts: "array[int]" = field(default_factory=lambda: array("q"))
    is_stuck: bytearray = field(default_factory=bytearray)
    priority: "array[int]" = field(default_factory=lambda: array("i"))
    age: "array[int]" = field(default_factory=lambda: array("q"))
    queue: "array[int]" = field(default_factory=lambda: array("i"))
    has: "array[int]" = field(default_factory=lambda: array("q"))
    had: "array[int]" = field(default_factory=lambda: array("q"))
    nobody: bytearray = field(default_factory=bytearray)
    _gone: set[str] = field(default_factory=set)
    _gangs: list[int] | None = None

    def is_over_limit(self, queue: Queue) -> bool:
        """Whether it holds more than it may, and more than at first."""
        q = self.queue_ix.get(queue)
        had = NOTHING if q is None else self.had[3 * q : 3 * q + 3]
        return any(queue.allocated[r] > max(queue.limit[r], had[r]) for r in RESOURCES)

    def amounts_of(self, pods: Iterable[int]) -> Amounts:
        """What the queue is charged for them."""
        held, gpu, cpu, memory = self.amounts, 0, 0, 0
        for p in pods:
            gpu += held[3 * p]
            cpu += held[3 * p + 1]
            memory += held[3 * p + 2]
        return gpu, cpu, memory

    def inside(self, queue: Queue, resource: int) -> list[int]:
        """The pods in the queue that hold any of the resource, the cheapest first; costs one pass
        over all."""
        found = []
        for w, leaf in enumerate(self.leaves):
            if queue not in leaf.chain:
                continue
            for p in self.members[w]:
                if self.is_here[p] and self.amounts[3 * p + resource] > 0:
                    is_core = self.is_core[p] or self.surplus[w] == 0
                    lost = self.whole_lost[w] if is_core else self.lost[p]
                    age, uid = self.age[w], self.pods[p].uid
                    found.append((is_core, lost, self.priority[w], age, self.turn[p], uid, p))
        return [entry[-1] for entry in sorted(found)]

    def unit_of(self, p: int) -> Sequence[int] | None:
        """The pods that leave when `p` is stopped, or None where one of them may not."""
        w = self.owner[p]
        workload = self.workloads[w]
        if self.n_live[w] > workload.min_member and not _has_tree(workload):
            return (p,)
        here = [m for m in self.members[w] if self.is_here[m]]
        if not _has_tree(workload):
            return here if len(here) == self.n_live[w] else None
        unit = {pod.uid for pod in unit_of(workload, self._live(workload), self.pods[p])}
        found = [m for m in here if self.pods[m].uid in unit]
        return found if len(found) == len(unit) else None

    def gangs(self) -> Sequence[int]:
        """Workloads of several pods, those first that lost least whole when this was first asked.

        Costs one pass over all workloads, once."""
        if self._gangs is None:
            several = [w for w, pods in enumerate(self.members) if len(pods) > 1]
            self._gangs = sorted(several, key=self.whole_lost.__getitem__)
        return self._gangs

    def is_legal(self, w: int) -> bool:
        """Whether what the workload has left is nothing, enough to go on, or all that it had."""
        workload = self.workloads[w]
        if not _has_tree(workload):
            if self.n_live[w] == 0 or self.n_live[w] >= workload.min_member:
                return True
        elif is_satisfied(workload, self._live(workload)):
            return True
        return self._gone.isdisjoint(pod.uid for pod in workload.pods)

    def stop(self, pods: Iterable[int]) -> None:
        """They leave for good; `refresh` their workload afterwards."""
        for p in pods:
            self.is_here[p] = 0
            self.n_live[self.owner[p]] -= 1
            self._gone.add(self.pods[p].uid)

    def spare(self, pods: Iterable[int]) -> None:
        """Undo `stop`."""
        for p in pods:
            self.is_here[p] = 1
            self.n_live[self.owner[p]] += 1
            self._gone.discard(self.pods[p].uid)

    def bar(self, w: int) -> None:
        """Nothing more is taken from the workload."""
        for p in self.members[w]:
            self.is_here[p] = 0

    def refresh(self, w: int) -> None:
        """Work out again what the workload could give."""
        workload = self.workloads[w]
        here = [p for p in self.members[w] if self.is_here[p]]
        self.whole_lost[w] = sum(self.lost[p] for p in here)
        self.whole_amounts[3 * w : 3 * w + 3] = array("q", self.amounts_of(here))
        self.is_stuck[w] = len(here) < self.n_live[w]
        if _has_tree(workload):
            self._mark_surplus(w, here)
        else:
            self.surplus[w] = max(0, self.n_live[w] - workload.min_member)

    def sync(self, queues: Iterable[Queue]) -> None:
        """Take over what the queues hold now."""
        for queue in queues:
            q = self.queue_ix.get(queue)
            if q is not None:
                self.has[3 * q : 3 * q + 3] = array("q", queue.allocated)

    def _live(self, workload: WorkloadView) -> list[PodView]:
        """Its pods that have a place and keep it."""
        gone = self._gone
        return [p for p in workload.pods if p.node and not p.is_terminating and p.uid not in gone]

    def _mark_surplus(self, w: int, here: Sequence[int]) -> None:
        """Find the pods of a tree of groups that may go one after the other."""
        workload = self.workloads[w]
        rest = {pod.uid: pod for pod in self._live(workload)}
        self.surplus[w] = 0
        for p in here:
            pod = rest.pop(self.pods[p].uid)
            self.is_core[p] = not is_satisfied(workload, rest.values())
            if self.is_core[p] or not rest:
                self.is_core[p] = 1
                rest[pod.uid] = pod
            else:
                self.surplus[w] += 1


def find_herd(session: Session, pool: str) -> Herd:
    """All of the pool that may be told to leave; costs one pass over all workloads."""
    snapshot = session.snapshot
    herd = Herd()
    layout = _Layout(session, pool, herd)
    youngest_first = sorted(snapshot.workloads.values(), key=_seniority, reverse=True)
    for workload in youngest_first:
        if workload.is_preemptible:
            layout.add(workload)
    layout.finish()
    return herd


def _seniority(workload: WorkloadView) -> tuple[int, str]:
    return workload.created_at, workload.key


def _has_tree(workload: WorkloadView) -> bool:
    return workload.tree is not None and bool(workload.tree.children)


@dataclass(slots=True)
class _Layout:
    """A herd in the making: pods are gathered by node first."""

    session: Session
    pool: str
    herd: Herd
    by_node: dict[int, list[tuple[int, PodView]]] = field(default_factory=dict)
    _leaves: dict[tuple[str, str], Queue | None] = field(default_factory=dict)

    def add(self, workload: WorkloadView) -> None:
        """Gather the workload's pods in the pool, if it may be touched at all."""
        nodes = self.session.snapshot.nodes
        ix_of, pools, pool = nodes.cards.ix, nodes.pool, self.pool
        n_live = 0
        places: list[tuple[int, PodView]] = []
        for pod in workload.pods:
            if pod.next_node:
                return
            if pod.node and not pod.is_terminating:
                if pod.state != "bound":
                    return
                n_live += 1
                ix = ix_of.get(pod.node, -1)
                if pools[ix] == pool:
                    places.append((ix, pod))
        leaf = self._leaf_of(workload) if places and places[0][0] >= 0 else None
        if leaf is None or (len(places) < n_live and self.session.is_giving(workload.key)):
            return
        if len(places) > 1:
            places = [(ix_of[pod.node], pod) for pod in in_leaving_order(pod for _, pod in places)]
        herd = self.herd
        w = len(herd.workloads)
        herd.workloads.append(workload)
        herd.leaves.append(leaf)
        herd.n_live.append(n_live)
        herd.by_key[workload.key] = w
        for ix, pod in places:
            self.by_node.setdefault(ix, []).append((w, pod))

    def _leaf_of(self, workload: WorkloadView) -> Queue | None:
        key = workload.project, workload.user
        if key not in self._leaves:
            self._leaves[key] = self.session.queues[self.pool].leaf_of(workload)
        return self._leaves[key]

    def finish(self) -> None:
        """Lay out the arrays."""
        herd, session = self.herd, self.session
        herd.members = [[] for _ in herd.workloads]
        self._lay_out_pods()
        self._mark_movable()
        self._order_members()
        self._lay_out_queues(session.queues[self.pool])
        self._lay_out_workloads()
        protected = session.settings.protected_pods
        touched = {
            w
            for w, workload in enumerate(herd.workloads)
            if len(herd.members[w]) != 1 or herd.n_live[w] != 1
        }
        if protected:
            for p, pod in enumerate(herd.pods):
                if pod.uid in protected:
                    herd.is_here[p] = 0
                    touched.add(herd.owner[p])
        for w in touched:
            herd.refresh(w)
        for key in session.served():
            w_or_none = herd.by_key.get(key)
            if w_or_none is not None:
                herd.bar(w_or_none)

    def _lay_out_pods(self) -> None:
        herd, snapshot = self.herd, self.session.snapshot
        now_s = snapshot.now_s
        shapes: dict[tuple[Demand, int], int] = {}
        pods, members = herd.pods, herd.members
        # Lists first: they grow faster than arrays, and this is done for every pod that runs.
        start, card_start = [0], [0]
        owner, shape_of, card_ix, card_milli = list[int](), list[int](), list[int](), list[int]()
        amounts, lost = list[int](), list[int]()
        for ix in range(len(snapshot.nodes)):
            for w, pod in self.by_node.get(ix, ()):
                members[w].append(len(pods))
                pods.append(pod)
                owner.append(w)
                held = held_amounts(pod, 0)
                amounts.extend(held)
                lost.append(seconds_lost(pod, now_s) * held[0])
                for card in pod.cards:
                    card_ix.append(card.index)
                    card_milli.append(card.milli)
                card_start.append(len(card_ix))
                key = pod.demand, id(pod.constraints)
                shape = shapes.get(key)
                if shape is None:
                    shape = shapes[key] = len(shapes)
                    herd.shapes.append((pod.demand, pod.constraints))
                shape_of.append(shape)
            start.append(len(pods))
        herd.start, herd.card_start = array("i", start), array("i", card_start)
        herd.owner, herd.shape = array("i", owner), array("i", shape_of)
        herd.card_ix, herd.card_milli = array("i", card_ix), array("i", card_milli)
        herd.amounts, herd.lost = array("q", amounts), array("q", lost)
        herd.turn = array("i", bytes(4 * len(herd.pods)))
        herd.most_pods = max(map(len, self.by_node.values()), default=0)
        herd.is_here = bytearray(b"\1" * len(herd.pods))
        herd.is_core = bytearray(len(herd.pods))

    def _mark_movable(self) -> None:
        herd = self.herd
        # Where a queue is over its limit a place that is promised anew would be refused to it.
        is_within = {
            leaf: all(q.allocated[r] <= q.limit[r] for q in leaf.chain for r in RESOURCES)
            for leaf in set(herd.leaves)
        }
        may_move = [
            is_within[leaf] and not has_topology(workload)
            for workload, leaf in zip(herd.workloads, herd.leaves, strict=True)
        ]
        herd.may_move = bytearray(
            pod.is_controlled and may_move[w] for pod, w in zip(herd.pods, herd.owner, strict=True)
        )

    def _order_members(self) -> None:
        herd = self.herd
        for listed in herd.members:
            if len(listed) > 1:
                by_uid = {herd.pods[p].uid: p for p in listed}
                in_order = in_leaving_order(herd.pods[p] for p in listed)
                listed[:] = [by_uid[pod.uid] for pod in in_order]
                for turn, p in enumerate(listed):
                    herd.turn[p] = turn

    def _lay_out_queues(self, queues: PoolQueues) -> None:
        herd = self.herd
        known: Collection[Queue] = (*queues.by_name.values(), *herd.leaves)
        for queue in known:
            if queue not in herd.queue_ix:
                herd.queue_ix[queue] = len(herd.queues)
                herd.queues.append(queue)
        herd.has = array("q", bytes(24 * len(herd.queues)))
        herd.sync(herd.queues)
        herd.had = herd.has[:]

    def _lay_out_workloads(self) -> None:
        herd, workloads = self.herd, self.herd.workloads
        amounts, firsts = herd.amounts, [listed[0] for listed in herd.members]
        herd.priority = array("i", [workload.priority for workload in workloads])
        herd.age = array("q", [max(0, _EPOCH_END - each.created_at) for each in workloads])
        herd.queue = array("i", [herd.queue_ix[leaf] for leaf in herd.leaves])
        herd.surplus = array("i", [max(0, 1 - workload.min_member) for workload in workloads])
        herd.whole_lost = array("q", [herd.lost[p] for p in firsts])
        herd.whole_amounts = array("q", [n for p in firsts for n in amounts[3 * p : 3 * p + 3]])
        herd.is_stuck = bytearray(len(herd.workloads))
        herd.nobody = bytearray(len(herd.workloads))


def in_leaving_order(pods: Iterable[PodView]) -> list[PodView]:
    """Pods of one workload, those that go first first: the last to start, of the lowest order."""
    by_name = sorted(pods, key=lambda pod: (len(pod.name), pod.name), reverse=True)
    return sorted(by_name, key=lambda pod: (pod.order, -pod.created_at))
