"""The cluster of a replay: nodes, running and pending jobs, in the form that `decide` reads.

Views are created when a job arrives and when it starts, and shared by all snapshots in between. A
snapshot gets only as many pending jobs as could start in one cycle, which changes no decision.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.api.kinds import Device, GpuNode, GpuNodeSpec, GpuNodeStatus
from extender.api.objects import ObjectMeta
from extender.api.units import MILLI_PER_GPU
from extender.lab.philly.plans import Places
from extender.lab.philly.rules import POOL, Part, ReplayPace, ReplayRule
from extender.lab.philly.trace import GPUS_PER_NODE, TraceJob
from extender.state.model import PodView, WorkloadView
from extender.state.nodes import NodeFacts, NodeTable
from extender.state.snapshot import Snapshot
from extender.state.tally import Tally

_NAMESPACE = "philly"
_CARD_MIB = 24_576
#: Demands by size, shared so that equal shapes are recognised quickly.
_DEMANDS = {gpus: Demand(devices=gpus, milli=MILLI_PER_GPU) for gpus in range(1, GPUS_PER_NODE + 1)}

Rank = tuple[int, int, int]
#: Pending jobs of one queue with the same number of GPUs.
_LineKey = tuple[str, int]


@dataclass(slots=True, eq=False)
class Entry:
    """A job that has arrived and has not finished. `running` is None while it is pending."""

    job: TraceJob
    rank: Rank
    waiting: WorkloadView
    running: WorkloadView | None = None


@dataclass(slots=True)
class SimulatedCluster:
    """Changes through `arrive`, `start`, `stop`, `lift` with `settle`, and `finish`.

    `snapshot` is the input of a cycle.
    """

    rule: ReplayRule
    part: Part
    pace: ReplayPace = field(default_factory=ReplayPace)
    nodes: NodeTable = field(init=False)
    entries: dict[str, Entry] = field(default_factory=dict)
    n_waiting: int = 0
    _tally: Tally = field(init=False)
    _running: dict[str, WorkloadView] = field(default_factory=dict)
    _held: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, int] = field(default_factory=dict)
    _lines: dict[_LineKey, list[tuple[Rank, str]]] = field(default_factory=dict)
    _n_unseen: dict[_LineKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = empty_nodes(self.part.n_nodes)
        self._tally = Tally.of(self.nodes, {})
        self._held = dict.fromkeys(self.part.quota_gpus, 0)
        self._waiting = dict.fromkeys(self.part.quota_gpus, 0)

    def arrive(self, job: TraceJob) -> Entry:
        """Add a pending job."""
        rule = self.rule
        rank = (-rule.priority_of(job), job.submit_s, job.number)
        view = _waiting_view(job, rule, self.pace)
        entry = self.entries[view.key] = Entry(job, rank, view)
        self._tally.replace(None, view)
        self._line_up(entry)
        return entry

    def start(self, key: str, places: Places, now_s: int) -> Entry:
        """Start all pods of a pending job where they were placed."""
        entry = self.entries[key]
        assert entry.running is None, f"{key} runs already"
        self._settle(entry, entry.waiting.pods, places, now_s)
        project, gpus = line_key = self._line_of(entry)
        line = self._lines[line_key]
        del line[bisect_left(line, (entry.rank, key))]
        self.n_waiting -= 1
        self._waiting[project] -= gpus
        self._held[project] += gpus
        return entry

    def lift(self, key: str, places: Places) -> None:
        """Release the cards of a running job's pods that are moved."""
        view = self._running[key]
        for pod in view.pods:
            if pod.uid in places:
                self.nodes.give_back(self.nodes.cards.ix[pod.node], pod.demand, pod.cards)

    def settle(self, key: str, places: Places, now_s: int) -> Entry:
        """Start the lifted pods on their new nodes; the whole job restarts."""
        entry = self.entries[key]
        assert entry.running is not None, f"{key} does not run"
        self._settle(entry, entry.running.pods, places, now_s)
        return entry

    def stop(self, key: str, now_s: int) -> Entry:
        """Evict a running job: it is pending again, and its cards are free."""
        entry = self._vacate(key)
        entry.waiting = replace(entry.waiting, waits_since=self.rule.waits_since(now_s))
        self._tally.replace(None, entry.waiting)
        self._line_up(entry)
        return entry

    def finish(self, key: str) -> Entry:
        """Remove a running job."""
        entry = self._vacate(key)
        del self.entries[key]
        return entry

    def snapshot(self, now_s: int) -> Snapshot:
        """The input of one cycle; costs a copy of the node table and of the running jobs."""
        self._n_unseen.clear()
        workloads = dict(self._running)
        candidates = {view.key: view for view in self._candidates()}
        workloads.update(candidates)
        tally = self._tally.copy()
        # A job outside the snapshot is not considered, but its request counts.
        tally.waiting = set(candidates)
        return Snapshot(
            now_s=now_s,
            nodes=self.nodes.copy(),
            pools=self.part.pools,
            queues=self.part.queues,
            workloads=workloads,
            tally=tally,
        )

    def has_blocked_no_larger(self, job: TraceJob) -> bool:
        """Whether the last cycle left a job pending in this job's queue that requests no more GPUs.

        If that job did not fit, neither does `job`, until something is released.
        """
        project = self.rule.project_of(job)
        return any(
            line_key[0] == project
            and line_key[1] <= job.gpus
            and len(line) > self._n_unseen.get(line_key, 0)
            for line_key, line in self._lines.items()
        )

    def next_patience_end(self, now_s: int) -> int | None:
        """When the next preemption delay ends, of jobs that could then start: no job can that
        requests as many GPUs as a job of its queue whose delay has ended."""
        least: dict[str, int] = {}
        soon: list[tuple[int, str, int]] = []
        for view in self._candidates():
            end_s = view.waits_since + view.preemption_delay_s
            gpus = self.entries[view.key].job.gpus
            if end_s > now_s:
                soon.append((end_s, view.project, gpus))
            else:
                least[view.project] = min(gpus, least.get(view.project, gpus))
        ends = [end_s for end_s, project, gpus in soon if gpus < least.get(project, gpus + 1)]
        return min(ends, default=None)

    def has_room_for_one(self) -> bool:
        """Whether some node has enough free cards for the smallest pending pod."""
        sizes = [min(gpus, GPUS_PER_NODE) for (_, gpus), line in self._lines.items() if line]
        return bool(sizes) and max(self._free_cards()) >= min(sizes)

    def _free_cards(self) -> list[int]:
        """The number of free cards of each node."""
        cards = self.nodes.cards
        return [cards.free_of(ix).count(MILLI_PER_GPU) for ix in range(len(cards))]

    def _candidates(self) -> Iterable[WorkloadView]:
        """The first pending jobs of each size and queue, as many as could start in one cycle."""
        rooms = self._rooms()
        for (project, gpus), line in self._lines.items():
            for _, key in line[: rooms[project] // gpus + 1]:
                yield self.entries[key].waiting

    def _rooms(self) -> dict[str, int]:
        """An upper bound of the GPUs that each queue can get in one cycle.

        It may get the free ones. By reclaim it may reach its fair share, which is at most the rest
        of the cluster: every other queue keeps the smaller of its quota and its demand.
        """
        quota, sure = self.part.quota_gpus, {}
        for project, gpus in quota.items():
            sure[project] = min(gpus, self._held[project] + self._waiting[project])
        capacity = self.part.n_nodes * GPUS_PER_NODE
        free = capacity - sum(self._held.values())
        left = capacity - sum(sure.values())
        return {project: max(free, left + sure[project] - self._held[project]) for project in quota}

    def _line_of(self, entry: Entry) -> _LineKey:
        return self.rule.project_of(entry.job), entry.job.gpus

    def _line_up(self, entry: Entry) -> None:
        project, gpus = line_key = self._line_of(entry)
        self._waiting[project] += gpus
        insort(self._lines.setdefault(line_key, []), (entry.rank, entry.waiting.key))
        self._n_unseen[line_key] = self._n_unseen.get(line_key, 0) + 1
        self.n_waiting += 1

    def _settle(self, entry: Entry, pods: Sequence[PodView], places: Places, now_s: int) -> None:
        """Run the job with these places and its other pods' old ones; overbooking is a bug."""
        bound = []
        for pod in pods:
            placed = places.get(pod.uid)
            if placed is None:
                assert pod.node, f"{pod.key} has no place"
                bound.append(replace(pod, started_at=now_s))
                continue
            ix = self.nodes.cards.ix[placed.node]
            self.nodes.hold(ix, pod.demand, placed.cards)
            free = self.nodes.cards.free_of(ix)
            assert all(free[card.index] >= 0 for card in placed.cards), f"{placed.node} overbooked"
            bound.append(
                replace(
                    pod,
                    state="bound",
                    is_gated=False,
                    node=placed.node,
                    cards=placed.cards,
                    started_at=now_s,
                )
            )
        key = entry.waiting.key
        view = replace(entry.waiting, pods=tuple(bound))
        self._tally.replace(entry.running or entry.waiting, view)
        entry.running = self._running[key] = view

    def _vacate(self, key: str) -> Entry:
        entry = self.entries[key]
        assert entry.running is not None, f"{key} does not run"
        for pod in entry.running.pods:
            self.nodes.give_back(self.nodes.cards.ix[pod.node], pod.demand, pod.cards)
        project, gpus = self._line_of(entry)
        self._held[project] -= gpus
        del self._running[key]
        self._tally.replace(entry.running, None)
        entry.running = None
        return entry


def empty_nodes(n_nodes: int) -> NodeTable:
    """Ready nodes with all cards free."""
    nodes = NodeTable()
    for number in range(n_nodes):
        _add_node(nodes, f"node-{number:04}")
    return nodes


def pod_sizes(gpus: int) -> list[int]:
    """GPUs of each pod of a job: whole nodes, and one pod with the remainder."""
    whole, rest = divmod(gpus, GPUS_PER_NODE)
    return [GPUS_PER_NODE] * whole + ([rest] if rest else [])


def _waiting_view(job: TraceJob, rule: ReplayRule, pace: ReplayPace) -> WorkloadView:
    name = f"{job.number:05}-{job.tenant}"
    sizes = pod_sizes(job.gpus)
    pods = tuple(
        PodView(
            uid=f"{name}-{at}",
            namespace=_NAMESPACE,
            name=f"{name}-{at}",
            demand=_DEMANDS[size],
            created_at=job.submit_s,
        )
        for at, size in enumerate(sizes)
    )
    return WorkloadView(
        key=f"{_NAMESPACE}/{name}",
        namespace=_NAMESPACE,
        name=name,
        is_group=len(pods) > 1,
        project=rule.project_of(job),
        priority=rule.priority_of(job),
        min_member=len(pods),
        pools=(POOL,),
        created_at=job.submit_s,
        waits_since=rule.waits_since(job.submit_s),
        preemption_delay_s=pace.preemption_delay_s,
        pods=pods,
    )


def _add_node(nodes: NodeTable, name: str) -> None:
    cards = [Device(index=c, memory_mib=_CARD_MIB) for c in range(GPUS_PER_NODE)]
    nodes.set_node(NodeFacts(name=name, pool=POOL))
    nodes.set_cards(
        GpuNode(
            metadata=ObjectMeta(name=name),
            spec=GpuNodeSpec(),
            status=GpuNodeStatus(devices=cards),
        )
    )
