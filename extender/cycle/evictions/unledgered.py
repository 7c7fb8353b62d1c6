"""Pods of projects that hold GPUs without a row: an event on each, and evictions if configured.

Such a pod bypassed Ballast: it was created while admission was down, or ran before its project
existed. Ballast plans around its GPUs, but nothing else stops the pod. Evictions run beside the
cycle, one pass at a time.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from extender.api import names
from extender.api.reasons import SENTENCES, Reason
from extender.api.shutdown import end_task
from extender.cycle import metrics
from extender.cycle.evictions.evictor import AT_ONCE
from extender.cycle.pod_events import pod_reference
from extender.cycle.pods.writer import PodWriter
from extender.cycle.writes import write_all
from extender.kube.errors import NotLeading
from extender.kube.recorder import EventRecorder
from extender.state.cluster import ClusterState
from extender.state.fleet.foreign import ForeignPod
from extender.state.pods.facts import PodFacts

#: Seconds between two passes.
LOOK_PERIOD_S: Final = 2.0
#: Evictions per pass: a switch set by mistake should not empty a cluster before it is noticed.
EVICTIONS_PER_LOOK: Final = 16
#: Seconds before a pod is evicted again; a refused eviction gives way to others until then.
RETRY_S: Final = 30.0

log = structlog.get_logger(__name__)


class UnledgeredKeeper:
    """Reports each pod once, and evicts it as long as it stays."""

    def __init__(self, state: ClusterState, writer: PodWriter, recorder: EventRecorder) -> None:
        self._state = state
        self._writer = writer
        self._recorder = recorder
        self._told: set[str] = set()
        self._tried_at: dict[str, float] = {}
        self._looked_at = float("-inf")
        self._evictions: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """One pass, without waiting for its evictions; costs the number of foreign pods."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < LOOK_PERIOD_S:
            return
        self._looked_at = now
        foreign = self._state.foreign_pods()
        _count(foreign)
        managed = [pod for pod in foreign if pod.is_managed]
        for pod in managed:
            if pod.facts.uid not in self._told:
                self._tell(pod)
        self._told = {pod.facts.uid for pod in managed}
        tried = self._tried_at.items()
        self._tried_at = {uid: at for uid, at in tried if now - at < RETRY_S}
        if self._evictions is not None and not self._evictions.done():
            return
        due = [
            pod
            for pod in managed
            if pod.is_unwanted
            and _can_be_evicted(pod.facts)
            and pod.facts.uid not in self._tried_at
        ]
        del due[EVICTIONS_PER_LOOK:]
        self._tried_at |= {pod.facts.uid: now for pod in due}
        if due:
            self._evictions = asyncio.create_task(self._evict_all(due))

    async def close(self) -> None:
        """Reset the metrics and cancel evictions under way: this process no longer leads."""
        _count(())
        await end_task(self._evictions)

    async def _evict_all(self, pods: Iterable[ForeignPod]) -> None:
        try:
            await write_all(map(self._evict, pods), what="pod without a row", at_once=AT_ONCE)
        except* NotLeading:
            pass  # the election ends the term
        except* Exception as errors:
            log.error("evictions of pods without a row broke", exc_info=errors)

    def _tell(self, pod: ForeignPod) -> None:
        facts = pod.facts
        will = "it is evicted" if pod.is_unwanted and not facts.is_mirror else "it keeps them"
        note = (
            f"{SENTENCES[Reason.UNLEDGERED]}: {pod.n_cards} on node {facts.node};"
            f" {will}, and they count for no project. {_cure(pod)}"
        )
        self._recorder.record(pod_reference(facts), Reason.UNLEDGERED, note, "Warning")
        log.warning("pod holds GPUs without a row", pod=facts.key, node=facts.node)

    async def _evict(self, pod: ForeignPod) -> None:
        """Evict the pod; delete it if claims took cards past the quota, despite any budget."""
        facts = pod.facts
        grace_s = pod.grace_s if pod.grace_s < facts.grace_s else None
        if pod.is_beyond_row:
            why = SENTENCES[Reason.UNLEDGERED]
            outcome = await self._writer.delete(facts, Reason.UNLEDGERED, why, grace_s=grace_s)
        else:
            outcome = await self._writer.evict(facts, grace_s=grace_s)
        if outcome == "done":
            metrics.EVICTED.labels(Reason.UNLEDGERED, "", "").inc()
        log.info("evicted a pod without a row", pod=facts.key, outcome=outcome)


def _count(foreign: Iterable[ForeignPod]) -> None:
    held = {True: 0, False: 0}
    for pod in foreign:
        held[pod.is_managed] += pod.n_cards
    for is_managed, n_gpus in held.items():
        metrics.FOREIGN_GPUS.labels(str(is_managed).lower()).set(n_gpus)


def _cure(pod: ForeignPod) -> str:
    """What a user should do so that all cards of such a pod are in the ledger."""
    if pod.is_beyond_row:
        return "Create the pod again, and leave its claims and their templates as they are"
    return f"Create the pod again with schedulerName {names.SCHEDULER_NAME}"


def _can_be_evicted(facts: PodFacts) -> bool:
    """Whether an eviction has an effect: kubelet recreates static pods whatever is deleted."""
    return not facts.is_mirror and not facts.is_terminating
