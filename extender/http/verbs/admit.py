"""Which nodes a claim may use, whatever is free on them: by its project, its node pools, and the
shares that the controller last published."""

import time
from typing import NamedTuple

from extender.api import names
from extender.api.reasons import Reason, Refused
from extender.api.units import share_milli
from extender.http.book import Book, NodeClass
from extender.http.claim import PodClaim
from extender.state.model import QueueView, department_queue, takes_model


class Admitted(NamedTuple):
    """The project of a claim, and the node pools that the claim may use."""

    project: str
    pools: tuple[str, ...]


def admit(book: Book, claim: PodClaim) -> Admitted | Reason:
    """The claim's project and node pools, or why it may use no node."""
    project = book.queues.project_of(claim.facts.namespace, "")
    if isinstance(project, Refused):
        return project.reason
    refused = book.queues.refuse_class(project, claim.facts.priority_class, names.CLASS_VALUES)
    if refused is not None:
        return refused.reason
    pools = book.queues.pools_for(project, claim.facts.pools)
    return pools.reason if isinstance(pools, Refused) else Admitted(project, pools)


def refuse_nodes(
    book: Book, claim: PodClaim, admitted: Admitted, nodes: NodeClass, leaving: int = 0
) -> Reason | None:
    """Why the claim may use none of these nodes, whatever is free on them; None if it may.

    `leaving` is the milli-GPU that victims of the same project free.
    """
    models = claim.facts.constraints.gpu_models
    if nodes.pool not in admitted.pools or not takes_model(models, nodes.model):
        return Reason.NO_MATCHING_NODE
    if nodes.card_mib == 0:  # no healthy card, so the need is unknown
        return None
    more = need_milli(claim, nodes.card_mib) - leaving
    return _refuse_share(book, admitted.project, nodes.pool, more)


def need_milli(claim: PodClaim, card_mib: int) -> int:
    """Milli-GPU that the claim needs on a node with cards of `card_mib` MiB."""
    demand = claim.demand
    if demand.gpu_memory_mib:
        return demand.devices * share_milli(demand.gpu_memory_mib, card_mib)
    return demand.total_milli


def _refuse_share(book: Book, project: str, pool: str, more: int) -> Reason | None:
    """Why the project or its department may not use `more` milli than now; None if it may.

    A queue may always use its quota: its published share is limited by an older demand, which may
    not include this pod. A department that does not exist sets no limit.
    """
    view = book.queues.project_views.get(project)
    refused = _refuse_level(book, view, pool, book.use_of(project, pool) + more)
    department = book.department_of(project)
    if refused is not None or not department:
        return refused
    view = book.queues.department_views.get(department_queue(department))
    return _refuse_level(book, view, pool, book.use_of_department(department, pool) + more)


def _refuse_level(book: Book, view: QueueView | None, pool: str, wanted: int) -> Reason | None:
    """Why one queue may not use `wanted` milli of the pool in all."""
    quota = view.pools.get(pool) if view else None
    quota_milli = quota.gpu.quota if quota else 0
    if quota and wanted > quota.gpu.limit:
        return Reason.OVER_LIMIT
    month = quota.gpu.month if quota else None
    if wanted > quota_milli and month is not None and month.is_spent_at(int(time.time())):
        return Reason.OVER_BUDGET
    if wanted > max(quota_milli, book.fair_share_of(view.name, pool) if view else 0):
        return Reason.OVER_FAIR_SHARE
    return None
