"""The verbs over HTTP: body in, body out. `verbs` has the decisions, `bind` the effects."""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from extender.api.reasons import Reason
from extender.http import metrics
from extender.http.bind import Binder
from extender.http.book import Book
from extender.http.claim import ClaimMemory, PodClaim, read_claim
from extender.http.live import LiveReader
from extender.http.metrics import Result
from extender.http.verbs.filter import filter_nodes
from extender.http.verbs.plan import check_plan
from extender.http.verbs.preempt import keep_candidates
from extender.http.verbs.prioritize import prioritize
from extender.http.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    decode,
    encode,
)
from extender.kube.errors import KubeError

#: kube-scheduler schedules one pod at a time, so a filter call that waits stops every pod.
LIVE_READ_S: Final = 1.0
API_AWAY: Final = "the API server did not answer; try again"

_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class Answer:
    """The JSON to send with code 200, and the result to count."""

    body: bytes
    result: Result


class Verbs:
    """The four verbs on one book."""

    def __init__(self, book: Book, memory: ClaimMemory, live: LiveReader, binder: Binder) -> None:
        self._book = book
        self._memory = memory
        self._live = live
        self._binder = binder

    @property
    def is_ready(self) -> bool:
        """Whether everything that the verbs read has been listed once."""
        return self._book.is_synced

    def note_sizes(self) -> None:
        """Update the gauges."""
        metrics.NODES.set(len(self._book))
        metrics.REMEMBERED.set(len(self._memory))

    async def filter(self, body: bytes) -> Answer:
        """Which of the nodes may be used; see `verbs.filter`. Blocks the loop for under 5 ms.

        Waits while too many binds are in flight; see `Room`.
        """
        args = decode(body, ExtenderArgs)
        names, claim = args.names, read_claim(args.pod)
        self._memory.remember(claim)
        await self._binder.room.wait()
        try:
            await self._look_for_row(claim, names)
        except (KubeError, TimeoutError) as error:
            _log.warning("could not read a planned row", pod=claim.key, error=repr(error))
            return Answer(encode(ExtenderFilterResult(error=API_AWAY)), "failed")
        verdict = filter_nodes(self._book, claim, names)
        answer = ExtenderFilterResult(verdict.kept, verdict.failed, verdict.unresolvable)
        return Answer(encode(answer), "ok" if verdict.kept else "refused")

    async def prioritize(self, body: bytes) -> Answer:
        """A score for each node; see `verbs.prioritize`."""
        args = decode(body, ExtenderArgs)
        return Answer(encode(prioritize(self._book, read_claim(args.pod), args.names)), "ok")

    async def preempt(self, body: bytes) -> Answer:
        """Which candidates of in-tree preemption may be used; see `verbs.preempt`."""
        args = decode(body, ExtenderPreemptionArgs)
        candidates = args.node_name_to_meta_victims or {}
        kept = keep_candidates(self._book, read_claim(args.pod), candidates)
        return Answer(encode(ExtenderPreemptionResult(kept)), "ok" if kept else "refused")

    async def bind(self, body: bytes) -> Answer:
        """Bind a pod, once; see `Binder`."""
        outcome = await self._binder.bind(decode(body, ExtenderBindingArgs))
        return Answer(encode(ExtenderBindingResult(outcome.error)), outcome.result)

    async def _look_for_row(self, claim: PodClaim, names: list[str]) -> None:
        """Read the planned node once if the book does not have its row yet."""
        plan = claim.plan
        if claim.way != "planned" or plan is None or plan.node not in names:
            return
        if check_plan(self._book, claim.uid, plan) is Reason.PLAN_NOT_RESERVED:
            async with asyncio.timeout(LIVE_READ_S):
                await self._live.read_node(plan.node)
