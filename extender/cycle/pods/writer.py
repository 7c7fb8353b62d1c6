"""Writes to single pods: release, revoke, evict. Each returns an outcome instead of raising.

The answer of a patch is applied to the model at once, so the next cycle does not wait for the watch
to deliver our own writes.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import structlog
from msgspec import Struct

from extender.api import names
from extender.api.events import Removed, Upserted
from extender.api.kinds import Row
from extender.api.objects import Pod
from extender.api.reasons import Reason
from extender.api.units import api_time
from extender.cycle import metrics
from extender.cycle.pods.narrow import Narrowing
from extender.cycle.pods.release import (
    Patch,
    forget_plan_patch,
    release_patch,
    revoke_patch,
    ungate_patch,
)
from extender.kube.backoff import Backoff
from extender.kube.client import Client, Evicted, EvictionRefused
from extender.kube.errors import (
    Conflict,
    KubeError,
    NotFound,
    NotLeading,
    RequestRefused,
    Throttled,
    Unavailable,
    WebhookAway,
)
from extender.kube.resources import PODS
from extender.state.cluster import ClusterState
from extender.state.model import PodView
from extender.state.pods.facts import PodFacts
from extender.state.refusals import Refusals

#: Revocations in flight.
WRITES_AT_ONCE: Final = 32

#: The longest pause between two reads of a pod after an eviction without an answer.
_LOOK_AGAIN_S: Final = 2.0

#: `unknown`: no answer came, so the eviction may have happened.
Outcome = Literal["done", "stale", "gone", "refused", "failed", "unknown"]

log = structlog.get_logger(__name__)


class Release(Struct, frozen=True):
    """An unbound pod, and the node and epoch of its reserved row."""

    pod: PodView
    node: str
    epoch: int


class PodWriter:
    """Writes to pods for the controller."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state
        self._limit = asyncio.Semaphore(WRITES_AT_ONCE)
        #: By UID, why the API server refused the release of a pod, until recovery handles it.
        self.denied: dict[str, RequestRefused | WebhookAway] = {}

    async def release(self, release: Release, narrowing: Narrowing) -> Outcome:
        """Release a reserved pod; if it changed meanwhile, the next cycle's recovery handles it."""
        pod = release.pod
        nodes = narrowing.nodes_for(pod, release.node) if pod.is_gated else ()
        patch = release_patch(pod, release.epoch, release.node, nodes)
        outcome = await self._patch(pod, patch)
        metrics.RELEASED.labels(outcome).inc()
        if outcome == "done":
            log.info("released pod", pod=pod.key, node=release.node, epoch=release.epoch)
        return outcome

    async def revoke(
        self,
        pod: PodView,
        node: str,
        row: Row,
        *,
        keeps_plan: bool = False,
        refusals: Refusals | None = None,
    ) -> bool:
        """Whether the unbound pod was patched, so that its row on `node` may be freed."""
        patch = revoke_patch(pod, node, row, keeps_plan=keeps_plan, refusals=refusals)
        async with self._limit:
            outcome = await self._patch(pod, patch)
        if outcome == "done":
            metrics.REVOKED.inc()
            log.info("row revoked", pod=pod.key, node=node, epoch=row.epoch)
        return outcome == "done"

    async def give_up(self, pod: PodView, node: str, row: Row) -> bool:
        """Whether the row of a pod that could not be released may be freed.

        If the API server refuses every change of the pod, it is enough that the pod is still gated:
        its release would be refused as well.
        """
        async with self._limit:
            outcome = await self._patch(pod, revoke_patch(pod, node, row))
        self.denied.pop(pod.uid, None)
        if outcome != "refused":
            return outcome == "done"
        try:
            now = await self._client.get(PODS, pod.name, pod.namespace)
        except KubeError as error:
            log.warning("pod not read", pod=pod.key, error=str(error))
            return False
        return now.metadata.uid == pod.uid and names.GATE in now.gates

    async def forget_plan(self, pod: PodView) -> None:
        """Remove the plan of a released pod without a row, so that it is planned again."""
        async with self._limit:
            await self._patch(pod, forget_plan_patch(pod))

    async def ungate(self, pod: PodView, labels: Mapping[str, str]) -> bool:
        """Remove the gate of a pod without a row and add node labels to its selector; returns
        whether that succeeded."""
        async with self._limit:
            return await self._patch(pod, ungate_patch(pod, labels)) == "done"

    async def evict(
        self, pod: PodView | PodFacts, *, grace_s: int | None = None, is_dry_run: bool = False
    ) -> Outcome:
        """Evict the pod; `refused` if a disruption budget does not allow it."""
        try:
            answer = await self._client.evict(
                pod.namespace, pod.name, uid=pod.uid, grace_s=grace_s, is_dry_run=is_dry_run
            )
        except NotLeading:
            raise
        except KubeError as error:
            log.warning("eviction failed", pod=pod.key, error=str(error))
            return _without_answer(error)
        if isinstance(answer, EvictionRefused):
            return "refused"
        return "done" if isinstance(answer, Evicted) else "gone"

    async def delete(
        self, pod: PodView | PodFacts, reason: Reason, why: str, *, grace_s: int | None = None
    ) -> Outcome:
        """Delete the pod despite disruption budgets; its owner sees a disruption, not a failure.

        As in an eviction, the pod first gets the condition DisruptionTarget, here with the message
        `why`.
        """
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": why,
            "lastTransitionTime": api_time(datetime.now(UTC)),
        }
        meta = {"uid": pod.uid}
        if not pod.node:
            # Keeps a pod that was released meanwhile, and fails any release in flight.
            meta["resourceVersion"] = pod.resource_version
        patch = {"metadata": meta, "status": {"conditions": [condition]}}
        try:
            await self._client.strategic_patch(PODS, pod.name, patch, pod.namespace, "status")
            await self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace_s=grace_s)
        except NotLeading:
            raise
        except (Conflict, NotFound):
            return "gone"
        except KubeError as error:
            log.warning("pod not deleted", pod=pod.key, error=str(error))
            return _without_answer(error)
        return "done"

    async def settle(self, pod: PodView) -> Outcome:
        """Read the pod after an `unknown` eviction, until the API server answers: `done` if the pod
        is terminating, `gone`, or `failed` if it stays."""
        backoff = Backoff(cap_s=_LOOK_AGAIN_S)
        while True:
            try:
                now = await self._client.get(PODS, pod.name, pod.namespace)
            except NotFound:
                break
            except (Throttled, Unavailable):
                await asyncio.sleep(backoff.next_s())
                continue
            except KubeError as error:
                log.warning("pod not read", pod=pod.key, error=str(error))
                return "failed"
            if now.metadata.uid != pod.uid:
                break
            self._state.apply(Upserted(now))
            return "done" if now.metadata.deletion_timestamp else "failed"
        self._state.apply(Removed(Pod, pod.uid, pod.namespace, pod.name))
        return "gone"

    async def is_absent(self, namespace: str, name: str, uid: str) -> bool:
        """Whether a live read finds no running pod of this UID; False if the read fails."""
        try:
            pod = await self._client.get(PODS, name, namespace)
        except NotFound:
            pass
        except KubeError as error:
            log.warning("pod not read", pod=f"{namespace}/{name}", error=str(error))
            return False
        else:
            if pod.metadata.uid == uid and not pod.is_terminal:
                self._state.apply(Upserted(pod))
                return False
        self._state.apply(Removed(Pod, uid, namespace, name))
        return True

    async def _patch(self, pod: PodView, patch: Patch) -> Outcome:
        try:
            after = await self._client.strategic_patch(PODS, pod.name, patch, pod.namespace)
        except NotLeading:
            raise
        except Conflict:
            return "stale"
        except NotFound:
            # The watch may never report it: it reports only pods that it has delivered before.
            self._state.apply(Removed(Pod, pod.uid, pod.namespace, pod.name))
            return "gone"
        except (RequestRefused, WebhookAway) as error:
            log.warning("patch of a pod refused", pod=pod.key, error=str(error))
            self.denied[pod.uid] = error
            return "refused"
        except KubeError as error:
            log.warning("pod not patched", pod=pod.key, error=str(error))
            return "failed"
        self._state.apply(Upserted(after))
        return "done"


def _without_answer(error: KubeError) -> Outcome:
    """The outcome of a write that raised the error."""
    return "unknown" if isinstance(error, Unavailable) else "failed"
