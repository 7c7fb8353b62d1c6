"""bind: one Binding per pod UID, however often and by whichever client it is requested.

A Binding carries the pod's UID and the resourceVersion on which it was decided, so it fails if the
pod has changed since: a new plan, a row about to be freed, a deletion. After a failure or a lost
answer, the pod is read live, and the Binding is tried once more from there.

A planned pod's row is only looked up, unless a claim gives the pod a share of a card: then the card
is written into the row. A direct pod's row is written here, before the Binding. Rows are never
freed here. A row seen once is enough, because the controller frees the row of an unbound pod only
after a patch of the pod, which changes its resourceVersion.
"""

import asyncio
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog

from extender.api.kinds import CardShare
from extender.api.ledger import write_cards
from extender.api.names import ANNOTATION_CARDS, DNS_LABEL, is_dns_subdomain
from extender.api.reasons import Reason, sentence
from extender.http import metrics
from extender.http.book import Book
from extender.http.claim import ClaimMemory, PodClaim, is_uid, read_claim
from extender.http.direct import DirectPlacer
from extender.http.live import LiveReader
from extender.http.metrics import Result
from extender.http.room import Room
from extender.http.shares import ShareSeater
from extender.http.turns import KeyedLocks
from extender.http.verbs.plan import check_plan
from extender.http.wire import BadBodyError, ExtenderBindingArgs
from extender.kube.client import Client
from extender.kube.errors import Conflict, KubeError, NotFound, Unavailable

#: kube-scheduler waits 5 s by default (httpTimeout); a later answer is lost.
DEADLINE_S: Final = 4.0

_log = structlog.get_logger(__name__)


class Obstacle(StrEnum):
    """Why a pod was not bound, besides the closed list of `extender.api.reasons`."""

    POD_GONE = "PodGone"
    POD_REPLACED = "PodReplaced"
    POD_ENDING = "PodEnding"
    BOUND_ELSEWHERE = "BoundElsewhere"
    POD_CHANGED = "PodChanged"
    API_AWAY = "ApiAway"
    TOO_LATE = "TooLate"


_TEXTS: Final[dict[Obstacle, str]] = {
    Obstacle.POD_GONE: "the pod does not exist any more",
    Obstacle.POD_REPLACED: "another pod has this name now",
    Obstacle.POD_ENDING: "the pod is being deleted or has ended",
    Obstacle.BOUND_ELSEWHERE: "the pod is bound to another node already",
    Obstacle.POD_CHANGED: "the pod changed while it was being bound",
    Obstacle.API_AWAY: "the API server did not answer or refused us",
    Obstacle.TOO_LATE: "the binding was not done in time",
}
#: Not decisions about the pod: the next attempt may succeed.
_UNDECIDED: Final = (Obstacle.POD_CHANGED, Obstacle.API_AWAY, Obstacle.TOO_LATE)


class Bound(str):
    """The node a pod is bound to."""

    __slots__ = ()


Conclusion = Bound | Reason | Obstacle


@dataclass(slots=True, frozen=True)
class BindOutcome:
    """The result of a bind; `error` is the text for kube-scheduler, empty if the pod is bound."""

    error: str
    result: Result


class Binder:
    """The verb bind. Only one call per UID runs at a time; others of that UID wait."""

    def __init__(
        self,
        book: Book,
        memory: ClaimMemory,
        live: LiveReader,
        client: Client,
        placer: DirectPlacer,
        seater: ShareSeater,
    ) -> None:
        self._book = book
        self._memory = memory
        self._live = live
        self._client = client
        self._placer = placer
        self._seater = seater
        self._turns = KeyedLocks()
        #: Binds in flight.
        self.room = Room()
        #: Seconds for the whole call.
        self.deadline_s = DEADLINE_S

    async def bind(self, args: ExtenderBindingArgs) -> BindOutcome:
        """Bind the pod or say why not; raises BadBodyError for invalid names."""
        _check_names(args)
        started, way = time.perf_counter(), "unknown"
        conclusion: Conclusion
        try:
            with self.room.taken():
                async with asyncio.timeout(self.deadline_s), self._turns.of(args.pod_uid):
                    way, conclusion = await self._decide(args)
        except TimeoutError:
            conclusion = Obstacle.TOO_LATE
        except KubeError as error:
            conclusion = Obstacle.API_AWAY
            _log.warning("a request for a binding failed", uid=args.pod_uid, error=error.message)
        return _conclude(args, way, conclusion, time.perf_counter() - started)

    async def _decide(self, args: ExtenderBindingArgs) -> tuple[str, Conclusion]:
        """How the pod was planned (`Way`), and where it is bound or why it is not."""
        # The remembered claim is enough only for a planned pod, whose row states what it may use.
        claim: PodClaim | Bound | Obstacle | None = self._memory.claim_of(args.pod_uid)
        if not isinstance(claim, PodClaim) or not _is_planned_as(claim, args):
            claim = await self._read(args)
        way = "unknown"
        for _ in range(2):
            if not isinstance(claim, PodClaim):
                return way, claim
            way = claim.way
            cards = await self._secure(claim, args.node)
            if isinstance(cards, Reason):
                return way, cards
            if await self._send(claim, args.node, cards):
                self._memory.forget(args.pod_uid)
                return way, Bound(args.node)
            claim = await self._read(args)
        return way, Obstacle.POD_CHANGED if isinstance(claim, PodClaim) else claim

    async def _read(self, args: ExtenderBindingArgs) -> PodClaim | Bound | Obstacle:
        """The pod's claim as it is now, or why nothing is left to do."""
        pod = await self._live.read_pod(args.pod_namespace, args.pod_name)
        if pod is None:
            return Obstacle.POD_GONE
        if pod.metadata.uid != args.pod_uid:
            return Obstacle.POD_REPLACED
        claim = read_claim(pod)
        if claim.facts.node:
            self._memory.forget(args.pod_uid)
            return _compare(claim.facts.node, args.node)
        if claim.facts.is_terminating or pod.is_terminal:
            return Obstacle.POD_ENDING
        return claim

    async def _secure(self, claim: PodClaim, node: str) -> tuple[CardShare, ...] | Reason:
        """The cards that the ledger holds for the pod on `node`; reserves them if needed."""
        if claim.way == "plain":
            return ()
        if claim.way == "direct":
            return await self._placer.reserve(claim, node)
        if claim.plan is None or claim.way == "withheld":
            return Reason.INVALID_REQUEST if claim.facts.problem else Reason.NOT_PLANNED
        if claim.plan.node != node:
            return Reason.PLANNED_ELSEWHERE
        row = check_plan(self._book, claim.uid, claim.plan)
        if row is Reason.PLAN_NOT_RESERVED:
            await self._live.read_node(node)
            row = check_plan(self._book, claim.uid, claim.plan)
        if isinstance(row, Reason):
            return row
        is_share = claim.facts.constraints.delivery == "share"
        return await self._seater.seat(claim, claim.plan) if is_share else tuple(row.cards)

    async def _send(self, claim: PodClaim, node: str, cards: tuple[CardShare, ...]) -> bool:
        """Whether the Binding succeeded; False if only a live read can tell."""
        facts = claim.facts
        try:
            await self._client.bind(
                facts.namespace,
                facts.name,
                uid=facts.uid,
                node=node,
                annotations={ANNOTATION_CARDS: write_cards(cards)} if cards else {},
                resource_version=facts.resource_version,
            )
        except (Conflict, NotFound, Unavailable) as error:
            _log.debug("a Binding failed", uid=facts.uid, error=error.message)
            return False
        return True


def _check_names(args: ExtenderBindingArgs) -> None:
    """Raise BadBodyError unless all are valid names, because they become part of API paths."""
    for key, value, is_valid, accepted in (
        ("PodName", args.pod_name, is_dns_subdomain, "an RFC 1123 subdomain"),
        ("PodNamespace", args.pod_namespace, DNS_LABEL.fullmatch, "an RFC 1123 label"),
        ("PodUID", args.pod_uid, is_uid, "letters, digits and '-'"),
        ("Node", args.node, is_dns_subdomain, "an RFC 1123 subdomain"),
    ):
        if not is_valid(value):
            raise BadBodyError(f"{key}: {value[:80]!r} is not {accepted}")


def _is_planned_as(claim: PodClaim, args: ExtenderBindingArgs) -> bool:
    facts = claim.facts
    names = (facts.namespace, facts.name)
    return claim.way == "planned" and names == (args.pod_namespace, args.pod_name)


def _compare(node: str, wanted: str) -> Bound | Obstacle:
    return Bound(node) if node == wanted else Obstacle.BOUND_ELSEWHERE


def _conclude(
    args: ExtenderBindingArgs, way: str, conclusion: Conclusion, took_s: float
) -> BindOutcome:
    """Count and log the decision, and put it into words."""
    facts = {
        "pod": f"{args.pod_namespace}/{args.pod_name}",
        "uid": args.pod_uid,
        "node": args.node,
        "way": way,
        "took_ms": round(took_s * 1000, 1),
    }
    if isinstance(conclusion, Bound):
        metrics.BINDS.labels(way, Reason.SCHEDULED).inc()
        _log.info("bound a pod", **facts)
        return BindOutcome("", "ok")
    metrics.BINDS.labels(way, conclusion).inc()
    _log.info("did not bind a pod", reason=str(conclusion), **facts)
    if isinstance(conclusion, Reason):
        return BindOutcome(sentence(conclusion), "refused")
    error = f"{conclusion}: {_TEXTS[conclusion]}"
    return BindOutcome(error, "failed" if conclusion in _UNDECIDED else "refused")
