"""The GPUs that each queue is owed: quota first, then by weight, in milli and without memory.

A yardstick for decisions, so it is computed independently of the policy's shares: nothing is
rounded to whole GPUs, past use is ignored, and a policy other than fair share changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from extender.api.units import MILLI_PER_GPU, share_milli
from extender.scenario import amounts
from extender.scenario.cluster import Cluster
from extender.scenario.world import RunJob, RunTask, World
from extender.state.model import GPU, QueueView

#: A project and one of its users; the user is empty for workloads without one.
Owner = tuple[str, str]


@dataclass(slots=True)
class _Party:
    """A queue or a user that takes part in a division."""

    name: str
    quota: int
    weight: int
    rank: int
    want: int


def owed_now(world: World) -> dict[Owner, int]:
    """Milli-GPU that each project's users are owed now, summed over node pools."""
    wants = _wants(world)
    owed: Counter[Owner] = Counter()
    for pool, capacity in world.past.capacity.items():
        here = {owner: want for (owner, named), want in wants.items() if named == pool}
        _divide_tree(world.cluster, pool, capacity[GPU], here, owed)
    return owed


def _demand_milli(task: RunTask, card_mib: int) -> int:
    """Milli-GPU that the task requests, on cards of this size."""
    demand = task.demand
    milli = demand.milli
    if demand.gpu_memory_mib:
        milli = min(MILLI_PER_GPU, share_milli(demand.gpu_memory_mib, card_mib))
    return demand.devices * milli + demand.counted_milli


def _wants(world: World) -> dict[tuple[Owner, str], int]:
    """What owners hold or request, by node pool; pending tasks count in the first that fits."""
    cluster = world.cluster
    most_cards: Counter[str] = Counter()
    card_mib = max((node.gpu_memory_mib for node in cluster.case.nodes), default=1)
    for node in cluster.case.nodes:
        pool = cluster.pool_of_node(node.name)
        most_cards[pool] = max(most_cards[pool], amounts.cards(node.gpus))
    wants: Counter[tuple[Owner, str]] = Counter()
    firm, quotas = _NonPreemptible(cluster), world.months.spent_quotas(cluster)
    counted: Counter[tuple[str, str]] = Counter()
    tasks = [(job, task) for job in world.jobs.values() for task in _wanted(job)]
    for job, task in sorted(tasks, key=lambda each: not each[1].held.node):
        fitting = (pool for pool in job.pools if task.demand.devices <= most_cards[pool])
        waits_in = next(fitting, "")
        pool = cluster.pool_of_node(task.held.node) if task.held.node else waits_in
        milli = _demand_milli(task, card_mib)
        key = job.spec.queue, pool
        if not task.held.node and key in quotas and counted[key] + milli > quotas[key]:
            continue
        counted[key] += milli
        if job.spec.is_preemptible or firm.take(job.spec.queue, pool, milli, task.held.node):
            wants[(job.spec.queue, job.spec.user), pool] += milli
    return wants


@dataclass(slots=True)
class _NonPreemptible:
    """Non-preemptible work: under fair share, nothing is owed to pending work beyond quota."""

    cluster: Cluster
    _held: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, queue: str, pool: str, milli: int, node: str) -> bool:
        """Whether this amount counts, for a task that runs on the node or (if empty) is pending."""
        names = [each.name for each in self.cluster.lineage(queue)]
        quotas = {name: self.cluster.queue_views[name].pools for name in names}
        if not node and pool and self.cluster.pools[pool].policy == "fairshare":
            for name in names:
                if self._held[name, pool] + milli > quotas[name][pool].gpu.quota:
                    return False
        for name in names:
            self._held[name, pool] += milli
        return True


def _wanted(job: RunJob) -> Iterable[RunTask]:
    """The job's tasks, at most as many as may run at once; running ones come first."""
    most = job.spec.max_concurrent_pods
    if most is None:
        return job.tasks
    return sorted(job.tasks, key=lambda task: task.place.status == "pending")[:most]


def _divide_tree(
    cluster: Cluster, pool: str, capacity: int, wants: Mapping[Owner, int], owed: Counter[Owner]
) -> None:
    children: dict[str, list[QueueView]] = {}
    for view in cluster.queue_views.values():
        children.setdefault(view.parent, []).append(view)

    def want_of(view: QueueView) -> int:
        below = children.get(view.name, [])
        own = sum(want for (project, _), want in wants.items() if project == view.name)
        return min(view.pools[pool].gpu.limit, own + sum(want_of(child) for child in below))

    def share_out(views: Iterable[QueueView], amount: int) -> None:
        parties = []
        for view in views:
            figures, rank = view.pools[pool].gpu, view.pools[pool].rank
            parties.append(_Party(view.name, figures.quota, figures.weight, rank, want_of(view)))
        for name, given in _divide(parties, amount).items():
            share_out(children.get(name, []), given)
            users = [
                _Party(user, 0, 1, 0, want)
                for (project, user), want in wants.items()
                if project == name
            ]
            for user, part in _divide(users, given).items():
                owed[name, user] += part

    share_out(children.get("", []), capacity)


def _divide(parties: list[_Party], amount: int) -> dict[str, int]:
    """Quota first, in proportion if there is too little; then by weight, rank by rank."""
    given = dict.fromkeys((party.name for party in parties), 0)
    within = {party.name: min(party.quota, party.want) for party in parties}
    amount -= _fill(parties, {party.name: party.quota for party in parties}, within, given, amount)
    wants = {party.name: party.want for party in parties}
    for rank in sorted({party.rank for party in parties}):
        here = [party for party in parties if party.rank == rank]
        amount -= _fill(here, {party.name: party.weight for party in here}, wants, given, amount)
    return given


def _fill(
    parties: list[_Party],
    weights: Mapping[str, int],
    caps: Mapping[str, int],
    given: dict[str, int],
    amount: int,
) -> int:
    """Give by weight up to the caps; returns the sum given, which may be a few below `amount`."""
    open_ones = [p.name for p in parties if weights[p.name] and given[p.name] < caps[p.name]]
    left = amount
    while open_ones and left > 0:
        total, spent = sum(weights[name] for name in open_ones), 0
        for name in open_ones:
            part = min(left * weights[name] // total, caps[name] - given[name])
            given[name] += part
            spent += part
        left -= spent
        still = [name for name in open_ones if given[name] < caps[name]]
        if len(still) == len(open_ones):
            break
        open_ones = still
    return amount - left
