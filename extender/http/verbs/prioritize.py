"""prioritize: a score of 0 to 10 per node, by the placement rule of the node's pool.

Called only for pods without a plan and with several nodes left; the protocol makes it advisory.
"""

from extender.http.book import Book
from extender.http.claim import PodClaim
from extender.http.verbs.place import FULL_SCORE, find_scores
from extender.http.wire import MAX_SCORE, HostPriority


def prioritize(book: Book, claim: PodClaim, names: list[str]) -> list[HostPriority]:
    """A score for each of `names`, in their order; 0 for nodes without a preference."""
    if claim.plan is not None:
        best = claim.plan.node
        return [HostPriority(name, MAX_SCORE if name == best else 0) for name in names]
    if claim.way != "direct":
        return [HostPriority(name, 0) for name in names]
    table, views = book.cards, book.queues.pool_views
    by_placement = {
        placement: find_scores(table, claim.demand, placement)
        for placement in {view.gpu_placement for view in views.values()}
    }
    by_class = [
        by_placement[views[each.pool].gpu_placement] if each.pool in views else None
        for each in book.classes
    ]
    half, class_of, answer = FULL_SCORE // 2, book.class_of, []
    for name in names:
        score, ix = 0, table.ix.get(name)
        if ix is not None and (scores := by_class[class_of[ix]]) is not None and scores[ix] > 0:
            score = (scores[ix] * MAX_SCORE + half) // FULL_SCORE
        answer.append(HostPriority(name, score))
    return answer
