"""preempt: which candidates of in-tree preemption may be used.

In-tree preemption knows priorities and node totals, but neither projects, nor cards, nor which pods
are preemptible. So each candidate is kept whole or dropped, and no victim is ever added.
"""

from extender.api.kinds import Row
from extender.api.reasons import Reason, Refused
from extender.http.book import Book
from extender.http.claim import PodClaim
from extender.http.verbs.admit import admit, refuse_nodes
from extender.http.verbs.place import pick_on
from extender.http.wire import MetaVictims


def keep_candidates(
    book: Book, claim: PodClaim, candidates: dict[str, MetaVictims]
) -> dict[str, MetaVictims]:
    """The candidates on which the pod may preempt every victim and then fits.

    A planned pod has its row and preempts no pod. An empty list of victims (from Kubernetes 1.38)
    is kept if the pod fits without preemption.
    """
    if claim.way not in ("direct", "plain"):
        return {}
    return {
        node: victims
        for node, victims in candidates.items()
        if _may_take(book, claim, node, victims)
    }


def _may_take(book: Book, claim: PodClaim, node: str, victims: MetaVictims) -> bool:
    rows = []
    for victim in victims.pods or ():
        held = book.rows_of(victim.uid)
        if held and node not in held:
            return False
        if held:
            rows.append(held[node])
    if rows and not _may_preempt(book, claim, book.pool_of(node), rows):
        return False
    return claim.way == "plain" or _fits_without(book, claim, node, rows)


def _may_preempt(book: Book, claim: PodClaim, pool: str, rows: list[Row]) -> bool:
    """Whether all rows are preemptible and of the claim's own project, in a pool with preemption.

    The controller decides which replicas a floor protects, so no such replica is preempted here.
    """
    project = book.queues.project_of(claim.facts.namespace, "")
    view = book.queues.pool_views.get(pool)
    if isinstance(project, Refused) or view is None or not view.has_preemption:
        return False
    if any(row.has_floor for row in rows):
        return False
    return all(row.project == project and not row.non_preemptible for row in rows)


def _fits_without(book: Book, claim: PodClaim, node: str, rows: list[Row]) -> bool:
    """Whether the claim fits on `node`, and within its share, once `rows` are gone."""
    gpu_node, nodes, admitted = book.node(node), book.node_class(node), admit(book, claim)
    if gpu_node is None or nodes is None or isinstance(admitted, Reason):
        return False
    if refuse_nodes(book, claim, admitted, nodes, leaving=sum(row.milli for row in rows)):
        return False
    gone = {row.uid for row in rows}
    left = [row for row in gpu_node.spec.rows if row.uid not in gone]
    return bool(pick_on(gpu_node, left, claim.demand, "binpack"))
