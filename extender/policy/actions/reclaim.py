"""Stage `reclaim`: a queue below what it deserves takes back from queues above theirs.

A queue deserves its fair share, and never less than its quota, even if quotas exceed the capacity.
The preemptor's and the victim's queue are compared just below their first common ancestor: projects
of one department, otherwise departments, and so on for any number of levels. Victims come in two
tiers: first from queues above both share and quota; then, for a preemptor within its quota, from
queues above their quota. Every queue below the compared one, down to the victim's own, must be
above its share too. Those above their quota come first, since quotas of a department's projects may
add up to more than its own.

A queue that states neither a CPU nor a memory quota protects neither against GPU work within quota:
its CPU-only work is evicted if such work needs its CPU or memory. "Above" means in a resource that
the victim holds. GPUs above a quota are reclaimed only by work that requests GPUs, since other work
never lifts its queue above a GPU quota.

A gang that cannot shrink is evicted whole even if its queue ends lower. But if the preemptor's
queue ends above its quota, the victim's queue may not end so far below its own that its work would
reclaim it back (`counter_reclaim`). The preemptor's queue ends within what it deserves, and no
queue above it exceeds what it deserves or held before. Moving a pod does not change its queue's
allocation, so a pod that can be moved may belong to any queue.

While demand does not change and no other pod ends, each plan lowers what queues hold above both
share and quota or, if that stays equal, what they hold above quota. So the stage comes to an end.
Nothing is reclaimed back: the evicted workload would lift its queue above its quota again, so it
finds victims only in queues above what they deserve, which the preemptor's is not. For smaller
work, see `counter_reclaim`. Evicted pods that are created again change neither demand nor shares.

A user's part counts only against the other users of the project. Work above it reclaims from other
projects, so a project gets what it deserves even if its users' parts are too small for their pods.

Between users of one project priority comes before shares, as in `preempt`: a user's work never
reclaims work of the project that precedes it. After the project has used up its monthly budget, its
users share its quota as they would a limit; while it holds more, none reclaims from another.

A queue above its quota is not entitled to immediate reclaim, and every job that arrives shifts all
fair shares a little. So a project that has its quota reclaims only up to its share less
`PoolView.reclaim_band_percent` of it, in whole GPUs; free cards may fill the rest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import gt

from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU
from extender.policy.actions.counter_reclaim import CounterReclaim
from extender.policy.actions.gpu_quotas import protect_gpu_quotas
from extender.policy.actions.long_wait_protection import LongWaitProtection
from extender.policy.actions.preemption_loop import PreemptionLoop
from extender.policy.actions.reclaim_notes import describe_side, explain_band, explain_share
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import (
    NOTHING,
    SHUT,
    Eligibility,
    EligibilityBuilder,
)
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solver import Preemption
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.min_runtime import reclaim_minimum_s
from extender.policy.queues.queue import RESOURCES, Queue, frozen, larger, smaller, states_host
from extender.policy.queues.room import check_room
from extender.policy.session import Session, placed_amounts
from extender.state.model import GPU, UNLIMITED, Amounts
from extender.state.tally import sum_amounts

_Precedence = tuple[bool, int]


def reclaim(preemption: Preemption) -> None:
    """Serve every pool that allows preemption; the backlog keeps what is still pending."""
    session = preemption.session
    for pool in session.backlog.pools():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = session.backlog.in_pool(pool)
            stage = _Reclaim(session, pool)
            PreemptionLoop(preemption, pool, "reclaim", stage).serve(here)


def take_back_quota(session: Session, request: PreemptionRequest, pool: str) -> PreemptionRule:
    """The rule for work of the request's project that ends within the quotas of its queues: what
    other projects hold above theirs. It may be used for the whole project."""
    leaf = request.leaf
    within = ((0, 0, 0),) * len(leaf.chain)
    preemptor = _Preemptor(leaf, int(leaf.is_user), within, request.need[GPU] > 0, None)
    return _ReclaimRule(session, pool, LongWaitProtection(session), preemptor, None, False)


@dataclass(slots=True, frozen=True)
class _Preemptor:
    """What the victims of a request depend on: its queue `leaf`, what each queue of its chain would
    hold above quota of the requested resources, and whether it requests GPUs. (Not the request
    itself, since rules outlive it.) `first`: the lowest level of the chain at which others give, 1
    for work above its user's part. `precedence`, of a user's work: whether it is of a first kind
    within the quota of its project, and its priority."""

    leaf: Queue
    first: int
    surplus: tuple[Amounts, ...]
    is_for_gpu: bool
    precedence: _Precedence | None


@dataclass(slots=True)
class _Reclaim:
    session: Session
    pool: str
    long_wait: LongWaitProtection = field(init=False)
    _rules: "dict[tuple[object, ...], _ReclaimRule]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.long_wait = LongWaitProtection(self.session)

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """The rules to try: victims inside the queue that has all it deserves, if there is one
        above the preemptor's, and then victims in every queue."""
        leaf, workload, need = request.leaf, request.pending.workload, request.need
        # A user's part counts only against the other users of the project.
        first = int(leaf.is_user and not leaf.has_room(need, leaf.deserves))
        over = next((q for q in leaf.chain[first:] if not q.has_room(need, q.deserves)), None)
        if over is leaf.chain[first]:
            return _above_share(self.session, self.pool, request)
        if refused := self._within_band(request):
            return refused
        surplus = tuple([_surplus(queue, need) for queue in leaf.chain])
        is_first = leaf.is_user and self.session.firsts.is_first(workload, leaf.project)
        precedence = (is_first, workload.priority) if leaf.is_user else None
        preemptor = _Preemptor(leaf, first, surplus, need[GPU] > 0, precedence)
        refused = check_room(leaf, workload, need, is_now=False)
        # GPUs above quota do not pass from user to user once the project's budget is used up.
        if refused is not None and (
            refused.reason is Reason.NON_PREEMPTIBLE_OVER_QUOTA
            or any(q.is_spent and q.allocated[GPU] > q.quota[GPU] for q in leaf.chain)
        ):
            return refused
        anywhere = self._rule(preemptor, None)
        if preemptor.is_for_gpu and not any(map(any, surplus[first:])):
            return anywhere, self._rule(preemptor, None, is_for_host=True)
        return (anywhere,) if over is None else (self._rule(preemptor, over), anywhere)

    def _within_band(self, request: PreemptionRequest) -> Refused | None:
        """A refusal if the project has its quota and would end within the band below its share."""
        percent = self.session.snapshot.pools[self.pool].reclaim_band_percent
        project, need = request.leaf.project, request.need
        has_its_quota = project.allocated[GPU] >= project.quota[GPU]
        if percent == 0 or need[GPU] == 0 or not has_its_quota:
            return None
        share, held = project.deserves[GPU], project.allocated[GPU] + need[GPU]
        most = share - share * percent // 100 // MILLI_PER_GPU * MILLI_PER_GPU
        if held <= most:
            return None
        return explain_band(request, most, percent)

    def _rule(
        self, preemptor: _Preemptor, inside: Queue | None, *, is_for_host: bool = False
    ) -> "_ReclaimRule":
        leaf = preemptor.leaf
        # The key has a queue above a quota, since it could be its own victim, and the rank and
        # weights, which `_has_more` compares.
        is_above = any(map(gt, leaf.allocated, leaf.quota))
        own = leaf if is_above else None
        precedence = preemptor.precedence
        key = (
            *(leaf.parent, own, preemptor.first, preemptor.surplus, inside),
            *(preemptor.is_for_gpu, is_for_host),
            None if precedence is None else (leaf.project, precedence),
            (leaf.figures.rank, *(each.weight for each in leaf.figures.figures)),
        )
        if key not in self._rules:
            self._rules[key] = _ReclaimRule(
                self.session, self.pool, self.long_wait, preemptor, inside, is_for_host
            )
        return self._rules[key]


@dataclass(slots=True, frozen=True, eq=False)
class _ReclaimRule(PreemptionRule):
    """Serves requests like that of `preemptor`; victims are `inside` a queue, or anywhere.
    `is_for_host`: CPU and memory are also taken from work without GPUs in queues that state no
    quota of them, and GPUs along with these only as far as queues are above their GPU quotas."""

    pool: str
    long_wait: LongWaitProtection
    preemptor: _Preemptor
    inside: Queue | None
    is_for_host: bool
    _explained: dict[tuple[Queue, Queue], str] = field(default_factory=dict)
    reason = Reason.RECLAIMED
    needs_victims = False

    @property
    def can_move(self) -> bool:
        """Whether pods may be moved."""
        return self.session.settings.moves_reclaimed

    def refusal(self, request: PreemptionRequest) -> Refused | None:
        """Why nothing is reclaimed for work above its user's part if no other project gives."""
        if not self.preemptor.first:
            return None
        return _above_share(self.session, self.pool, request)

    def explain(self, request: PreemptionRequest, victim_queue: Queue) -> str:
        """What the compared queues hold, and their quotas or fair shares, whichever decide. Found
        once for each pair of queues, since these figures stay as they are during a cycle."""
        key = request.leaf, victim_queue
        known = self._explained.get(key)
        if known is None:
            path, level = compared(victim_queue, levels_of(request.leaf))
            is_by_quota = not any(self.preemptor.surplus[level])
            sides = request.leaf.chain[: level + 1], path
            known = self._explained[key] = "; ".join(
                describe_side(side, is_by_quota=is_by_quota) for side in sides if side
            )
        return known

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """As `PreemptionRule.eligibility`."""
        preemptor, inside, is_for_host = self.preemptor, self.inside, self.is_for_host
        eligibility, level_of = EligibilityBuilder(candidates), levels_of(preemptor.leaf)
        for victim_queue in candidates.queues:
            path, level = compared(victim_queue, level_of)
            if level < preemptor.first or (inside is not None and inside not in victim_queue.chain):
                eligibility.add(0, is_mobile=victim_queue not in level_of)
                continue
            eligibility.add(2, path, is_mobile=True)
            self._set_floors(eligibility, path, preemptor, level)
            for queue in path if is_for_host else ():
                eligibility.set_floor(queue, 1, _without_unstated(queue.quota))
        is_safe = protected_by(
            self.session, candidates, lambda leaf: reclaim_minimum_s(leaf, level_of)
        )
        if is_for_host:
            is_safe = protect_gpu_quotas(candidates, level_of, is_safe)
        is_safe = self._protect_preceding(candidates, is_safe)
        return eligibility.finish(
            self.long_wait.protect(candidates, preemptor.leaf, preemptor.surplus, is_safe)
        )

    def _protect_preceding(self, candidates: Candidates, is_safe: bytearray) -> bytearray:
        """Protect work of the project that precedes the preemptor, if that is a user's work."""
        precedence, project = self.preemptor.precedence, self.preemptor.leaf.project
        if precedence is None:
            return is_safe
        precedes = [
            leaf.project is project and (bool(is_first), priority) > precedence
            for leaf, is_first, priority in zip(
                candidates.leaves, candidates.is_first, candidates.priority, strict=True
            )
        ]
        return bytearray(
            NOTHING if precedes[w] else protected
            for w, protected in zip(candidates.owner, is_safe, strict=True)
        )

    def _set_floors(
        self,
        eligibility: EligibilityBuilder,
        path: Sequence[Queue],
        preemptor: _Preemptor,
        level: int,
    ) -> None:
        """The last queue of `path` is compared with the preemptor's. In the second tier the others
        keep at most what the queue above keeps, less the non-preemptible work of sibling queues."""
        above: Amounts | None = None
        for queue in reversed(path):
            keep, quota = queue.share_to_keep, queue.quota
            owed = quota if preemptor.is_for_gpu else (SHUT, *quota[1:])
            surplus = preemptor.surplus[level]
            if above is None:
                peer = preemptor.leaf.chain[level]
                even = [not _has_more(queue, queue.allocated, peer, surplus, r) for r in RESOURCES]
                # A queue exceeds its limit only if the limit was lowered.
                most = (limit * is_even for limit, is_even in zip(queue.limit, even, strict=True))
                gpu, cpu, memory = map(max, keep, quota, most)
                eligibility.set_floor(queue, 0, (gpu, cpu, memory))
                above = (gpu, cpu, memory) if any(surplus) else owed
            else:
                eligibility.set_floor(queue, 0, larger(keep, quota))
                above = _beside_np(queue, keep if any(surplus) else smaller(keep, owed), above)
            eligibility.set_floor(queue, 1, above)

    def validate(self, request: PreemptionRequest, statement: Statement) -> bool:
        """Whether the preemptor's queues stay within what they deserve with these placements."""
        leaf, amounts = request.leaf, placed_amounts(statement.placements)
        chain = leaf.chain[self.preemptor.first :]
        has_room = PreemptionRule.validate(self, request, statement)
        if not has_room or not self._counts_what_runs(leaf, statement):
            return False
        if all(queue.has_room(amounts, queue.quota) for queue in chain):
            # No queue deserves less than its quota.
            return True
        if CounterReclaim(self.session, self.pool, request, statement, amounts).is_likely():
            return False
        if not self._had_more(leaf, statement):
            return False
        for queue in chain:
            bound = queue.deserves
            if queue.has_room(amounts, bound):
                continue
            most = bound if queue is chain[0] else larger(bound, statement.held_before(queue))
            if not queue.has_room(amounts, most):
                return False
        return True

    def _counts_what_runs(self, leaf: Queue, statement: Statement) -> bool:
        """Whether each compared queue that gives up nominations and running pods would still be
        above what it keeps if the nominations went first."""
        candidates = statement.candidates
        last: dict[Queue, tuple[int, Amounts]] = {}
        with_nominations: set[Queue] = set()
        for queue, level, pods in _lost_units(leaf, self.preemptor.first, statement):
            if candidates.pods[pods[0]].state == "nominated":
                with_nominations.add(queue)
            else:
                last[queue] = level, candidates.amounts_of(pods)
        for queue in with_nominations & last.keys():
            level, amounts = last[queue]
            is_for_share = any(self.preemptor.surplus[level])
            keep = larger(queue.share_to_keep, queue.quota) if is_for_share else queue.quota
            before = sum_amounts((frozen(queue.allocated), amounts))
            if not any(amounts[r] and before[r] > keep[r] for r in RESOURCES):
                return False
        return True

    def _had_more(self, leaf: Queue, statement: Statement) -> bool:
        """Whether `_has_more` holds for all victim queues with what they held right before this
        plan. The floors are set by what they held when the rule was made."""
        given: dict[Queue, tuple[int, Amounts]] = {}
        for queue, level, pods in _lost_units(leaf, self.preemptor.first, statement):
            if any(self.preemptor.surplus[level]):
                _, before = given.get(queue, (level, (0, 0, 0)))
                given[queue] = level, sum_amounts((before, statement.candidates.amounts_of(pods)))
        return all(
            self._queue_had_more(queue, leaf.chain[level], amounts, self.preemptor.surplus[level])
            for queue, (level, amounts) in given.items()
        )

    def _queue_had_more(
        self, queue: Queue, peer: Queue, amounts: Amounts, surplus: Amounts
    ) -> bool:
        """Whether the queue, which loses these amounts, had more than `peer` ends with, or more
        than its limit."""
        before = sum_amounts((frozen(queue.allocated), amounts))
        keep = larger(queue.share_to_keep, queue.quota)
        return any(
            amounts[r]
            and before[r] > keep[r]
            and (before[r] > queue.limit[r] or _has_more(queue, before, peer, surplus, r))
            for r in RESOURCES
        )


def _above_share(session: Session, pool: str, request: PreemptionRequest) -> Refused:
    """Says that the request's queue would end above what it deserves."""
    lacks = session.draft.waits.get(request.key)
    where = f" in pool {pool}" if len(request.pending.workload.pools) > 1 else ""
    return explain_share(request, lacks, where)


def _lost_units(
    leaf: Queue, first: int, statement: Statement
) -> Iterator[tuple[Queue, int, Sequence[int]]]:
    """The pods of each evicted unit with the queue that is compared, and its level, from `first`
    on, in the chain of the preemptor's queue `leaf`."""
    level_of = levels_of(leaf)
    for unit in statement.units.values():
        path, level = compared(statement.candidates.leaves[unit.w], level_of)
        if level >= first:
            yield path[-1], level, unit.pods


def _surplus(queue: Queue, more: Amounts) -> Amounts:
    """What the queue would hold above its quota with `more`, of the resources in `more`."""
    (gpu, cpu, memory), has, quota = more, queue.allocated, queue.quota
    return (
        gpu and max(0, has[0] + gpu - quota[0]),
        cpu and max(0, has[1] + cpu - quota[1]),
        memory and max(0, has[2] + memory - quota[2]),
    )


def _has_more(
    victim_queue: Queue, held: Sequence[int], preemptor: Queue, surplus: Amounts, resource: int
) -> bool:
    """Whether the victim queue, with `held`, exceeds its quota by more for its weight than the
    preemptor's by its `surplus`. Always true between ranks, as these get shares in turn."""
    if not surplus[resource] or victim_queue.figures.rank != preemptor.figures.rank:
        return True
    weight = victim_queue.figures.figures[resource].weight
    above = held[resource] - victim_queue.quota[resource]
    return above * preemptor.figures.figures[resource].weight > surplus[resource] * weight


def _beside_np(queue: Queue, floor: Amounts, above: Amounts) -> Amounts:
    """What the non-preemptible work of sibling queues leaves of `above`, at most the floor."""
    parent = queue.parent
    assert parent is not None
    gpu, cpu, memory = (
        max(0, most - (in_all - own))
        for most, in_all, own in zip(above, parent.allocated_np, queue.allocated_np, strict=True)
    )
    return smaller(floor, (gpu, cpu, memory))


def _without_unstated(quota: Amounts) -> Amounts:
    """The quota without CPU and memory if it states neither, and without unlimited GPUs."""
    gpu, cpu, memory = quota
    if gpu >= UNLIMITED:
        gpu = 0
    return (gpu, cpu, memory) if states_host(quota) else (gpu, 0, 0)
