"""One pod takes the place of one other that holds just as much: what most plans in a full pool are.

Then nothing changes on any node, so it is plain that nobody leaves in vain: who has no place still
has none. Such a plan is made in one step; it is the one that `search` would come to.
"""

from typing import TYPE_CHECKING

from extender.api.demand import Demand
from extender.policy.preemption.statement import Unit

if TYPE_CHECKING:
    from extender.policy.preemption.search import Search


def swap(search: "Search") -> bool:
    """Seat the claim's one pod where the cheapest to leave is one that holds just what it wants.

    False, and nothing done, where it is not as simple as that, or anybody could move.
    """
    solver, claim = search.solver, search.claim
    if search.can_move or not claim.is_alike or len(claim.chunk) > 1:
        return False
    pod = claim.chunk[0]
    if solver.session.places.beside or not solver.fullness.is_full(pod.demand, pod.constraints):
        return False
    offers = solver.offers(search.rule, claim.shapes[0], with_moves=False)
    at = offers.cheapest()
    ix = offers.candidates[at] if at >= 0 else -1
    chosen = offers.choose(ix) if at >= 0 else None
    if chosen is None or len(chosen) != 1:
        return False
    p, herd = chosen[0], solver.herd
    if not herd.may_stop((p,)) or not _holds_just(search, p, ix, pod.demand):
        return False
    tier, is_below = offers.giving(at)
    unit = Unit((p,), herd.owner[p], tier, is_below, True, herd.lost[p])
    search.trial.take_over(unit, pod, ix)
    return True


def _holds_just(search: "Search", p: int, ix: int, demand: Demand) -> bool:
    """Whether pod p, all there is of its workload, has on node `ix` what another one that wants
    `demand` would get once it has left."""
    herd, session = search.solver.herd, search.solver.session
    victim = herd.pods[p]
    if herd.n_live[herd.owner[p]] != 1 or victim.demand != demand:
        return False
    indices: tuple[int, ...]
    if len(victim.cards) == 1:
        indices = (victim.cards[0].index,)
    else:
        indices = tuple(sorted([card.index for card in victim.cards]))
    if victim.cards != session.places.shares(ix, demand, indices):
        return False
    # Cards that have room by themselves might be taken rather than those of who leaves.
    free = session.sim.later.cards.free_of(ix)
    return not indices or max(free) < victim.cards[0].milli
