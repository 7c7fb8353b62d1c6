"""Whether the ledger has the row that a pod's plan names."""

from extender.api.kinds import Row
from extender.api.reasons import Reason
from extender.http.book import Book
from extender.http.claim import RowName


def check_plan(book: Book, uid: str, plan: RowName) -> Row | Reason:
    """The row with which the planned pod may be bound to its node, or why it may not be.

    PLAN_NOT_RESERVED may only mean that the book does not have the row yet.
    """
    row = book.row(uid, plan.node)
    if row is None or row.epoch != plan.epoch or row.state == "nominated":
        return Reason.PLAN_NOT_RESERVED
    if not book.is_healthy(plan.node, row):
        return Reason.CARD_UNHEALTHY
    return row
