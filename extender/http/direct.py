"""Rows of direct pods, which no controller planned: the extender picks their cards.

The row is written by compare-and-swap before the Binding. Both cases are safe: a new row cannot
have been chosen before to be freed; and a row that a live read finds belongs to a pod that was
never planned, and the controller frees no such row.

Binds to a node that arrive while its rows are being written wait, and the next write has all of
them. So a node costs one write at a time, however many pods kube-scheduler sends to it at once.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.kinds import CardShare, GpuNode, GpuNodeSpec, Row
from extender.api.ledger import guaranteed_milli
from extender.api.reasons import Reason, Refused
from extender.http.book import Book
from extender.http.claim import PodClaim
from extender.http.live import LiveReader
from extender.http.turns import KeyedLocks
from extender.http.verbs.admit import admit, need_milli, refuse_nodes
from extender.http.verbs.place import pick_on
from extender.ledger.rows import add_rows, row_of
from extender.ledger.writer import Ledger
from extender.state.model import PlacementRule

Cards = tuple[CardShare, ...]

#: For a pod that has a row: nothing is added, so no project is needed.
NO_PROJECT: Final = ""


@dataclass(slots=True, eq=False)
class RowRequest:
    """A pod that requests a row on a node; `outcome` is set once that is decided.

    `promise` counts the need for the project until the row does.
    """

    claim: PodClaim
    project: str = NO_PROJECT
    promise: ExitStack = field(default_factory=ExitStack)
    outcome: Cards | Reason | None = None


class DirectPlacer:
    """Reserves cards for direct pods on the node that kube-scheduler chose."""

    def __init__(
        self,
        book: Book,
        live: LiveReader,
        ledger: Ledger,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._book = book
        self._live = live
        self._ledger = ledger
        self._now_s = now_s
        self._turns = KeyedLocks()
        self._waiting: dict[str, list[RowRequest]] = {}

    async def reserve(self, claim: PodClaim, node: str) -> Cards | Reason:
        """The cards that the ledger holds for the pod on `node`, or why it gets none.

        `claim` must come from a live read after any earlier attempt for this pod.
        """
        for held_on, held in self._book.rows_of(claim.uid).items():
            if held_on != node and held.state != "nominated":
                return Reason.PLANNED_ELSEWHERE
        if self._book.node(node) is None:
            await self._live.read_node(node)
        request = RowRequest(claim)
        if self._book.row(claim.uid, node) is None:
            refused = self._admit(request, node)
            if refused is not None:
                return refused
        with request.promise:
            return await self._grant(request, node)

    def _admit(self, request: RowRequest, node: str) -> Reason | None:
        """Find the pod's project and count the need for it, or say why the pod is refused."""
        claim, nodes = request.claim, self._book.node_class(node)
        if nodes is None:
            return Reason.UNKNOWN_NODE
        admitted = admit(self._book, claim)
        if isinstance(admitted, Reason):
            return admitted
        # No await between the check and the promise, so two binds can't use the same share.
        refused = refuse_nodes(self._book, claim, admitted, nodes)
        if refused is None:
            need = need_milli(claim, nodes.card_mib)
            promise = self._book.promised(admitted.project, nodes.pool, need)
            request.promise.enter_context(promise)
            request.project = admitted.project
        return refused

    async def _grant(self, request: RowRequest, node: str) -> Cards | Reason:
        """The outcome of the request, after this call's write or an earlier one."""
        waiting = self._waiting.setdefault(node, [])
        waiting.append(request)
        try:
            async with self._turns.of(node):
                if request.outcome is None:
                    await self._write(node, waiting)
        finally:
            if request in waiting:
                waiting.remove(request)
            if not waiting and self._waiting.get(node) is waiting:
                del self._waiting[node]
        return request.outcome or Reason.PLAN_NOT_RESERVED

    async def _write(self, node: str, waiting: list[RowRequest]) -> None:
        """Decide all requests that wait for the node with one write; none if the write fails."""
        requests = list(waiting)
        view = self._book.queues.pool_views.get(self._book.pool_of(node))
        placement = view.gpu_placement if view else "binpack"
        outcomes: dict[RowRequest, Cards | Reason] = {}

        def edit(current: GpuNode) -> Sequence[Row]:
            rows: tuple[Row, ...] = tuple(current.spec.rows)
            for request in requests:
                rows, outcomes[request] = self._place(request, current, rows, placement)
            return rows

        written = await self._ledger.change(node, edit)
        # No await from here: the book counts the rows at the moment that the promises end.
        if isinstance(written, Refused):
            outcomes = dict.fromkeys(requests, written.reason)
        else:
            self._book.apply(Upserted(written))
        for request, outcome in outcomes.items():
            request.outcome = outcome
            request.promise.close()
            if request in waiting:
                waiting.remove(request)

    def _place(
        self, request: RowRequest, node: GpuNode, rows: tuple[Row, ...], placement: PlacementRule
    ) -> tuple[tuple[Row, ...], Cards | Reason]:
        """`rows` with the pod's row added, and its cards or why it has none."""
        own = row_of(rows, request.claim.uid)
        if own is not None and own.state != "nominated":
            return rows, tuple(own.cards)
        if own is not None or request.project == NO_PROJECT:
            return rows, Reason.PLAN_NOT_RESERVED
        as_planned = replace(node, spec=GpuNodeSpec(rows=list(rows)))
        cards = pick_on(as_planned, rows, request.claim.demand, placement)
        if not cards:
            return rows, Reason.CARDS_BUSY
        after = add_rows(as_planned, [self._row_of(request, cards)])
        return (rows, after.reason) if isinstance(after, Refused) else (after, cards)

    def _row_of(self, request: RowRequest, cards: Cards) -> Row:
        claim, facts = request.claim, request.claim.facts
        return Row(
            uid=facts.uid,
            namespace=facts.namespace,
            name=facts.name,
            project=request.project,
            group=facts.group,
            cards=list(cards),
            compute_request_milli=guaranteed_milli(facts.stated.compute_request_milli, cards),
            compute_limit_milli=facts.stated.compute_limit_milli,
            non_preemptible=not claim.is_preemptible,
            has_floor=facts.replica is not None,
            restart_policy=facts.restart_policy,
            state="reserved",
            epoch=0,
            reserved_at=int(self._now_s()),
        )
