"""The loop: for each due Workload, ask every cluster and nominate one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import msgspec
import structlog
from prometheus_client import Counter

from extender.api import names
from extender.api.objects import Condition
from extender.api.reasons import Reason
from extender.api.units import api_time
from extender.api.versions import version_number
from extender.dispatch.clusters import WorkerClusters
from extender.dispatch.kinds import WORKLOADS, Asked, Workload
from extender.dispatch.nomination import nominate
from extender.dispatch.ranking import Heard, choose
from extender.dispatch.state import DispatchState
from extender.dispatch.turns import Turn, Turns
from extender.kube.client import Client
from extender.kube.errors import Conflict, KubeError, NotFound, NotLeading
from extender.kube.wire import decode_object
from extender.view.answers import WantedPods, WantedWorkload

#: Delay before a Workload whose write failed is handled again.
RETRY_S: Final = 5.0
#: Pause between two passes over all Workloads, so that a burst of events costs one pass.
PAUSE_S: Final = 0.2
#: After this time all Workloads are sorted again, since more urgent ones may have arrived.
LOOK_S: Final = 2.0

_log = structlog.get_logger(__name__)
_ANSWERS = Counter(
    "ballast_dispatch_answers_total",
    "Answers of worker clusters: starts, waits, never, not ours, silent.",
    ["cluster", "answer"],
)
_NOMINATIONS = Counter(
    "ballast_dispatch_nominations_total", "Nominations that were written.", ["cluster"]
)
_LAPSED = Counter(
    "ballast_dispatch_lapsed_nominations_total",
    "Nominations that the cluster did not admit in time.",
    ["cluster"],
)


class Dispatcher:
    """Nominates clusters for the Workloads of `state`, one at a time, so that each question counts
    the earlier nominations."""

    def __init__(
        self, client: Client, state: DispatchState, clusters: WorkerClusters, reserve_s: float
    ) -> None:
        self._client = client
        self._state = state
        self._clusters = clusters
        self._clock = asyncio.get_running_loop().time
        self._turns = Turns(reserve_s, self._clock)

    async def run(self, changed: asyncio.Event) -> NoReturn:
        """Nominate until cancelled, whenever `changed` is set or a Workload is due."""
        while True:
            changed.clear()
            await self.step()
            await asyncio.sleep(PAUSE_S)
            due = self._turns.next_due()
            timeout_s = None if due is None else max(0.0, due - self._clock())
            try:
                async with asyncio.timeout(timeout_s):
                    await changed.wait()
            except TimeoutError:
                continue

    async def step(self) -> None:
        """Ask about the Workloads that are due now, for `LOOK_S` at most."""
        pending, until = self._state.pending(), self._clock() + LOOK_S
        self._turns.keep(pending, self._state.progress)
        turns = {key: self._turns.look(workload) for key, workload in pending.items()}
        for key, turn in turns.items():
            if turn.due <= self._clock():
                await self._decide(key, turn)
                if self._clock() >= until:
                    return

    async def _decide(self, key: str, turn: Turn) -> None:
        """Ask and nominate; an error with one Workload does not affect others."""
        namespace, _, name = key.partition("/")
        turn_again = self._clock() + RETRY_S
        try:
            body = await self._client.get_raw(WORKLOADS.url(namespace, name))
            await self._ask_and_nominate(_Read.of(body), turn)
        except NotLeading:
            raise
        except (NotFound, Conflict):
            # The watch delivers the change.
            turn.due = turn_again
        except KubeError as error:
            turn.due = turn_again
            _log.warning("could not nominate", workload=key, error=error.message)
        except Exception:
            self._turns.refuse(turn)
            _log.exception("a Workload could not be asked about", workload=key)

    async def _ask_and_nominate(self, read: "_Read", turn: Turn) -> None:
        check = self._state.check_of(read.workload)
        if not check:
            turn.due = self._clock() + RETRY_S
            return
        for cluster in turn.nominated:
            _LAPSED.labels(cluster).inc()
        self._turns.lapse(turn)
        wanted = read.wanted
        if isinstance(wanted, str):
            self._turns.refuse(turn)
            await self._write_condition(read, Reason.INVALID_REQUEST, wanted)
            return
        heard = await self._ask_all(self._state.clusters_of(check), wanted)
        chosen = choose(heard, turn.tried)
        message = (
            "; ".join(map(str, heard)) or f"AdmissionCheck {check} leads to no MultiKueueConfig"
        )
        if not chosen:
            self._turns.refuse(turn)
            await self._write_condition(read, Reason.NO_CLUSTER, message)
            return
        if read.workload.status.nominated_cluster_names != chosen:
            nominated = await nominate(self._client, read.whole, chosen)
            turn.version = version_number(nominated.metadata.resource_version)
            for cluster in chosen:
                _NOMINATIONS.labels(cluster).inc()
        self._turns.nominate(turn, chosen, wanted)
        _log.info("nominated", workload=read.workload.key, clusters=chosen, answers=message)
        await self._write_condition(read, Reason.NOMINATED, f"{', '.join(chosen)}. {message}")

    async def _ask_all(self, clusters: Sequence[str], wanted: WantedWorkload) -> list[Heard]:
        heard = await asyncio.gather(
            *(
                self._clusters.ask(
                    name, self._state.cluster(name), [*self._turns.in_flight(name, wanted), wanted]
                )
                for name in clusters
            )
        )
        for each in heard:
            answer = each.prospect.state if each.prospect else "silent"
            _ANSWERS.labels(each.cluster, answer).inc()
        return list(heard)

    async def _write_condition(self, read: "_Read", reason: Reason, message: str) -> None:
        """Write the condition `ballast.dev/Dispatched` if it has changed. It is informative only: a
        failed write does not affect the decision."""
        status = "True" if reason is Reason.NOMINATED else "False"
        found, meta = read.workload.status.conditions, read.workload.metadata
        before = next((c for c in found if c.type == names.CONDITION_DISPATCHED), None)
        if before and (before.status, before.reason, before.message) == (status, reason, message):
            return
        since = before.last_transition_time if before and before.status == status else None
        condition = Condition(
            type=names.CONDITION_DISPATCHED,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=since or api_time(datetime.now(UTC)),
        )
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.apply(WORKLOADS, meta.name, body, meta.namespace, "status")
        except NotLeading:
            raise
        except KubeError as error:
            _log.warning("could not tell", workload=read.workload.key, error=error.message)


@dataclass(frozen=True, slots=True)
class _Read:
    """A current Workload: the whole object, its decoded part, and the question for the clusters, or
    why it cannot be read."""

    whole: dict[str, Any]
    workload: Workload
    wanted: WantedWorkload | str

    @classmethod
    def of(cls, body: bytes) -> "_Read":
        """Decode a response of the API server."""
        return cls(msgspec.json.decode(body), decode_object(WORKLOADS, body), _wanted_of(body))


def _wanted_of(body: bytes) -> WantedWorkload | str:
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except msgspec.DecodeError as error:
        return f"its pod sets can't be read: {error}"
    meta = asked.metadata
    pod_sets = [
        WantedPods(template=each.template.copy(), count=each.count) for each in asked.spec.pod_sets
    ]
    return WantedWorkload(namespace=meta.namespace, name=meta.name, pod_sets=pod_sets)
