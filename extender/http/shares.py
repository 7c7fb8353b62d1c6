"""Shares requested by claims: writes the card that kube-scheduler allocated into the pod's row.

kube-scheduler writes the allocation before it calls bind (plugin dynamicresources, PreBind), so it
can be read here. The row is written before the Binding, so the Binding and the ledger agree, and
neither changes once the pod is bound.
"""

from extender.api.events import Upserted
from extender.api.kinds import CardShare
from extender.api.reasons import Reason, Refused
from extender.http.book import Book
from extender.http.claim import PodClaim, RowName
from extender.http.live import LiveReader
from extender.ledger.rows import row_of
from extender.ledger.seating import seat
from extender.ledger.writer import Ledger


class ShareSeater:
    """Writes the allocated card into the rows of planned pods with a claim for a share."""

    def __init__(self, book: Book, live: LiveReader, ledger: Ledger) -> None:
        self._book = book
        self._live = live
        self._ledger = ledger

    async def seat(self, claim: PodClaim, plan: RowName) -> tuple[CardShare, ...] | Reason:
        """The cards of the pod's row, which now names the allocated card; raises KubeError."""
        pod = await self._live.read_pod(claim.facts.namespace, claim.facts.name)
        if pod is None or pod.metadata.uid != claim.uid:
            return Reason.PLAN_NOT_RESERVED
        allocated = await self._live.read_devices(pod)
        written = await self._ledger.change(
            plan.node, lambda node: seat(node, claim.uid, plan.epoch, allocated)
        )
        if isinstance(written, Refused):
            return written.reason
        self._book.apply(Upserted(written))
        row = row_of(written.spec.rows, claim.uid)
        return tuple(row.cards) if row else Reason.PLAN_NOT_RESERVED
