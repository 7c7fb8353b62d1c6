"""Stage `reclaim`: a queue below what it deserves takes back from queues above theirs.

A queue deserves its fair share, and never less than its quota, even where quotas exceed what there
is. Taker and giver are compared at the two queues just below the first that is above both: between
projects of one department the projects, otherwise the departments, and so on for any number of
levels. Queues give in two tiers: first what is above both share and quota; then, to a taker within
its quota, what is above quota. Every queue below the one compared, down to the giver's own, must be
above its share too. "Above" is above in a resource that the victim holds; but GPUs above a quota
are given to those alone who ask for GPUs, for who asks for none is never above his quota of them.
What cannot shrink goes whole even if its queue ends lower; but where the taker's queue ends above
its quota, the one beside it may not end so far below its own that work of its own would take that
back (`taking_back`). The taker ends at or under what it deserves, and no queue above it passes what
it deserves, or what it had already. Who is moved costs his queue nothing, so he may come from any.

So, while demand stays as it is and nothing else is freed, two sums strictly fall, the first before
the second: what queues hold above both share and quota, and what they hold above quota. What was
taken can't be taken back: a queue at or under what it deserves is no victim, one that would pass it
with the evicted workload is no taker, and smaller work has no claim on what is lacking, see above.
Evicted pods that are made again don't change demand, so they don't change the shares either.

Above quota nobody is owed anything at once, and every job that arrives shifts all fair shares a
little. With `Settings.reclaim_band_percent` a project above its quota takes only while it lacks
more than that part of its share, in whole GPUs; free cards still fill the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import gt
from typing import Final

from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU, format_tenths
from extender.policy.actions.counter_reclaim import TakingBack
from extender.policy.actions.preemption_loop import DESERVES, LIMIT, Taking, first_over
from extender.policy.preemption.candidates import Herd
from extender.policy.preemption.eligibility import Rule, Terms, TermsBuilder
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.statement import Claim, Trial
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.tree import RESOURCES, Queue, larger
from extender.policy.session import Session, format_amount, placed_amounts
from extender.state.model import GPU, Amounts

_RuleKey = tuple[Queue | None, Queue | None, tuple[bool, ...], Queue | None, bool]

#: A floor above what any queue holds.
_NEVER: Final = 1 << 60


def reclaim(session: Session) -> None:
    """Serve every pool that allows preemption; `session.pending` is left with what still waits."""
    for pool in session.pools_in_order():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = [pending for pending in session.pending if pool in pending.pools]
            stage = _Reclaim(session, pool)
            Taking(session, pool, "reclaim", stage.rules_of).serve(here)


@dataclass(slots=True, frozen=True)
class _Taker:
    """What matters of a claim for who gives to it: its queue, whether that and each one above it
    stay within quota, and whether it asks for GPUs. (Not the claim itself: rules outlive it.)"""

    leaf: Queue
    is_in_quota: tuple[bool, ...]
    is_for_gpu: bool


@dataclass(slots=True)
class _Reclaim:
    session: Session
    pool: str
    _rules: dict[_RuleKey, Rule] = field(default_factory=dict)

    def rules_of(self, claim: Claim) -> Sequence[Rule] | Refused:
        """From whom the claim may take: from inside a queue that has all it deserves, and only
        if that does not do, from everywhere."""
        leaf, workload, need = claim.leaf, claim.pending.workload, claim.need
        is_in_quota = tuple([queue.has_room(need, queue.quota) for queue in leaf.chain])
        # No queue deserves less than its quota.
        over = None if all(is_in_quota) else first_over(claim, DESERVES)
        if over is leaf:
            return _has_its_share(claim, leaf.deserves, self.session.waits.get(claim.key))
        if self._is_near_its_share(claim):
            return Refused(
                Reason.OVER_FAIR_SHARE,
                f"{claim.key}: {leaf.project.name} is above its quota and close to its fair share,"
                " nobody is stopped for the rest",
            )
        taker = _Taker(leaf, is_in_quota, need[GPU] > 0)
        refused = self.session.check_room(leaf, workload, need, "later")
        if refused is not None:
            over = first_over(claim, LIMIT)
            if over is None or over is leaf:
                return refused
            return (self._rule(taker, over),)
        anywhere = self._rule(taker, None)
        return (anywhere,) if over is None else (self._rule(taker, over), anywhere)

    def _is_near_its_share(self, claim: Claim) -> bool:
        """Whether the claim is above its project's quota, and within the band below its share."""
        percent = self.session.settings.reclaim_band_percent
        project, need = claim.leaf.project, claim.need
        if percent == 0 or project.has_room(need, project.quota):
            return False
        share = project.deserves[GPU]
        band = share * percent // 100 // MILLI_PER_GPU * MILLI_PER_GPU
        return project.allocated[GPU] + need[GPU] > share - band

    def _rule(self, taker: _Taker, inside: Queue | None) -> Rule:
        leaf = taker.leaf
        # A queue above its quota in something could be its own victim, so it is told from others.
        is_above = any(map(gt, leaf.allocated, leaf.quota))
        own = leaf if is_above else None
        key = leaf.parent, own, taker.is_in_quota, inside, taker.is_for_gpu
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = Rule(
                reason=Reason.RECLAIMED,
                terms=lambda herd: self._terms(herd, taker, inside),
                may_keep=self._may_keep,
                note=lambda claim, giver: f"{_share_of(claim.leaf)}; {_share_of(giver)}",
                needs_victims=False,
                can_move=self.session.settings.moves_reclaimed,
                max_moves=self.session.settings.max_moves,
            )
        return rule

    def _terms(self, herd: Herd, taker: _Taker, inside: Queue | None) -> Terms:
        terms, level_of = TermsBuilder(herd), levels_of(taker.leaf)
        for giver in herd.queues:
            path, level = compared(giver, level_of)
            if giver in level_of or (inside is not None and inside not in giver.chain):
                terms.add(0, is_mobile=giver not in level_of)
                continue
            terms.add(2 if taker.is_in_quota[level] else 1, path, is_mobile=True)
            self._set_floors(terms, path, is_for_gpu=taker.is_for_gpu)
        return terms.finish(protected_by(self.session, herd, _reclaim_runtime))

    def _set_floors(self, terms: TermsBuilder, path: Sequence[Queue], *, is_for_gpu: bool) -> None:
        """The last of the path is the queue that is compared with the taker's."""
        for queue in path:
            keep, quota = queue.share_to_keep, queue.quota
            owed = quota if is_for_gpu else (_NEVER, *quota[1:])
            if queue is path[-1]:
                terms.set_floor(queue, 0, larger(keep, quota))
                terms.set_floor(queue, 1, owed)
            else:
                terms.set_floor(queue, 0, keep)
                terms.set_floor(queue, 1, _smaller(keep, owed))

    def _may_keep(self, claim: Claim, trial: Trial) -> bool:
        """Whether the taker's queues stay within what they deserve, with the cards it has got."""
        leaf, amounts = claim.leaf, placed_amounts(trial.placements)
        if self.session.check_room(leaf, claim.pending.workload, amounts, "later") is not None:
            return False
        if all(queue.has_room(amounts, queue.quota) for queue in leaf.chain):
            # Nobody takes back what is within quota, and no queue deserves less.
            return True
        if TakingBack(self.session, self.pool, claim, trial, amounts).is_likely():
            return False
        for queue in leaf.chain:
            bound = queue.deserves
            if queue.has_room(amounts, bound):
                continue
            most = bound if queue is leaf else larger(bound, trial.held_before(queue))
            if not queue.has_room(amounts, most):
                return False
        return True


def _reclaim_runtime(queues: Iterable[Queue]) -> int:
    return max(queue.reclaim_min_runtime_s for queue in queues)


def _smaller(one: Sequence[int], other: Sequence[int]) -> Amounts:
    return min(one[0], other[0]), min(one[1], other[1]), min(one[2], other[2])


def _share_of(queue: Queue) -> str:
    """What the queue holds and is entitled to, for owners of work that is reclaimed."""
    held, share = format_tenths(queue.held[GPU]), format_tenths(queue.deserves[GPU])
    return f"{queue.name} holds {held} GPUs of its fair share of {share}"


def _has_its_share(claim: Claim, bound: Amounts, lacks: Refused | None) -> Refused:
    """That nobody is stopped for it, after what is known of why it has no place as it is."""
    leaf = claim.leaf
    short = [r for r in RESOURCES if claim.need[r] and leaf.allocated[r] + claim.need[r] > bound[r]]
    resource = GPU if GPU in short else short[0]
    need, has, most = (
        format_amount(resource, amounts[resource])
        for amounts in (claim.need, leaf.allocated, bound)
    )
    if resource == GPU:
        has = has.removesuffix(" GPUs").removesuffix(" GPU")
    share = f"{leaf.name} has {has} of its fair share of {most}, so nobody is stopped for it"
    if lacks is not None and lacks.reason is Reason.INSUFFICIENT_GPU and lacks.detail:
        return Refused(Reason.OVER_FAIR_SHARE, f"{lacks.detail}; {share}")
    return Refused(Reason.OVER_FAIR_SHARE, f"{claim.key}: needs {need}; {share}")
