"""Requests nodes from autoscalers for workloads that lack nodes within their quota, and no others.

Every few seconds, beside the cycle, a pass decides which workloads are entitled to new nodes
(`extender.policy.scale_up`). If the autoscaler reads pods, `ungated` shows it their pods. Otherwise
each workload gets a ProvisioningRequest. The pass lists the controller's requests, creates missing
ones, and deletes the request of a workload that has started, is gone, or is no longer entitled. It
keeps the request of a workload that the cycle had no time for. The controller keeps no other record
of requests, so a new leader continues with the listed ones.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import structlog

from extender.api import names
from extender.api.objects import ProvisioningRequest
from extender.api.reasons import Refused
from extender.api.shutdown import end_task
from extender.cycle import metrics
from extender.cycle.keepers.provisioning_request import Wanted, state_of, wanted
from extender.cycle.keepers.ungated import UngatedPods
from extender.cycle.writes import write_all
from extender.kube.client import Client
from extender.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeading
from extender.kube.resources import POD_TEMPLATES, PROVISIONING_REQUESTS
from extender.policy.plan import Plan
from extender.policy.scale_up import ScaleUp, ScaleUps, left_waiting, scale_ups
from extender.state.cluster import ClusterState
from extender.state.snapshot import Snapshot

#: Seconds between two passes; short, to have the result before pods are told why they wait.
LOOK_S: Final = 2.0
#: A pass takes as much CPU time as a decision. The pause after it is this many times as long, so
#: passes use at most a tenth of one core.
_REST: Final = 9
#: Seconds after which a request is made again if it failed, or its nodes were given up.
RETRY_S: Final = 300.0
_NOT_SERVED: Final = "no node is added: this cluster serves no ProvisioningRequest"
_OVER: Final = frozenset({"Failed", "BookingExpired", "CapacityRevoked"})
_SELECTOR: Final = f"{names.LABEL_MANAGED_BY}={names.CONTROLLER_NAME}"

#: (namespace, name)
_Key = tuple[str, str]

log = structlog.get_logger(__name__)


class ProvisioningKeeper:
    """Requests to autoscalers during one term of leadership."""

    def __init__(self, client: Client, state: ClusterState, ungated: UngatedPods) -> None:
        self._client = client
        self._state = state
        self._ungated = ungated
        self._next_at = float("-inf")
        #: Stays True until a pass finds no request and no entitled workload.
        self._is_needed = True
        self._over_since: dict[str, float] = {}
        self._notes: Mapping[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    def noted(self, plan: Plan) -> Plan:
        """The plan, with the requested nodes, or why there are none, added to wait reasons."""
        noted = {
            key: Refused(refused.reason, f"{refused.detail}; {note}")
            for key, note in self._notes.items()
            if (refused := plan.waits.get(key)) is not None
        }
        return replace(plan, waits=plan.waits | noted) if noted else plan

    def start(self, plan: Plan) -> None:
        """Begin a pass if one is due; returns at once."""
        now = asyncio.get_running_loop().time()
        if now < self._next_at or (self._task is not None and not self._task.done()):
            return
        has_elastic = any(pool.spec.elastic for pool in self._state.node_pools.values())
        if not has_elastic and not self._is_needed:
            return
        self._next_at = now + LOOK_S
        snapshot = self._state.snapshot(int(time.time()))
        self._task = asyncio.create_task(self._look(snapshot, left_waiting(plan), plan.cut))

    async def close(self) -> None:
        """Cancel a pass under way: this process no longer leads."""
        await end_task(self._task)

    async def _look(self, snapshot: Snapshot, keys: list[str], cut: Collection[str]) -> None:
        try:
            await self._keep(snapshot, keys, cut)
        except* NotLeading:
            pass  # the election ends the term
        except* KubeError as errors:
            log.warning("provisioning failed", errors=[str(error) for error in errors.exceptions])
        except* Exception as errors:
            log.error("provisioning broke", exc_info=errors)

    async def _keep(self, snapshot: Snapshot, keys: list[str], cut: Collection[str]) -> None:
        pools = snapshot.pools
        found, took_s = await asyncio.to_thread(_decide, snapshot, keys)
        self._next_at = max(self._next_at, asyncio.get_running_loop().time() + _REST * took_s)
        await self._ungated.keep(found.wanted, keys, pools)
        by_request: dict[str, tuple[ScaleUp, Wanted]] = {}
        notes: dict[str, str] = {}
        for key, scale_up in found.wanted.items():
            view = pools[scale_up.pool].elastic
            assert view is not None
            if view.reads_pods:
                notes[key] = f"{_asked_for(scale_up)} by its pods, which wait without the gate"
            else:
                by_request[key] = scale_up, wanted(scale_up, view)
        self._notes = found.refused | notes | await self._keep_requests(by_request, cut)

    async def _keep_requests(
        self, by_request: Mapping[str, tuple[ScaleUp, Wanted]], cut: Collection[str]
    ) -> dict[str, str]:
        """Make the ProvisioningRequests exactly these; returns notes for their workloads."""
        try:
            listed = await self._client.list_all(PROVISIONING_REQUESTS, label_selector=_SELECTOR)
        except NotFound:
            self._is_needed = False
            if by_request:
                log.warning("this cluster has no ProvisioningRequests", waiting=len(by_request))
            return dict.fromkeys(by_request, _NOT_SERVED)
        there = {(each.metadata.namespace, each.metadata.name): each for each in listed.items}
        entitled = {(each.namespace, each.name): each for _, each in by_request.values()}
        self._is_needed = bool(there or entitled)
        await self._write(there, entitled, cut)
        counts = Counter(state_of(each) for each in there.values())
        metrics.PROVISIONING.clear()
        for state, count in counts.items():
            metrics.PROVISIONING.labels(state).set(count)
        return {
            key: _note_of(scale_up, given.name, there.get((given.namespace, given.name)))
            for key, (scale_up, given) in by_request.items()
        }

    async def _write(
        self,
        there: Mapping[_Key, ProvisioningRequest],
        entitled: Mapping[_Key, Wanted],
        cut: Collection[str],
    ) -> None:
        now = asyncio.get_running_loop().time()
        over = {each.metadata.uid for each in there.values() if state_of(each) in _OVER}
        self._over_since = {uid: self._over_since.get(uid, now) for uid in over}
        writes = []
        for key, request in there.items():
            if _workload_key(request) in cut:
                continue
            given, uid = entitled.get(key), request.metadata.uid
            is_spent = now - self._over_since.get(uid, now) >= RETRY_S
            if given is None or is_spent or _requested(request) != given.requested:
                writes.append(self._delete(request))
        writes += [self._make(given) for key, given in entitled.items() if key not in there]
        await write_all(writes, what="provisioning request")

    async def _make(self, given: Wanted) -> None:
        body, templates = given.documents()
        # Templates first: the autoscaler fails a request without its templates.
        for template in templates:
            with contextlib.suppress(AlreadyExists):
                await self._client.create(POD_TEMPLATES, template, namespace=given.namespace)
        try:
            await self._client.create(PROVISIONING_REQUESTS, body, namespace=given.namespace)
        except AlreadyExists:
            return  # one being deleted, or made by someone else: the next pass will see
        log.info("asked for nodes", request=f"{given.namespace}/{given.name}")

    async def _delete(self, request: ProvisioningRequest) -> None:
        """Delete the request and its templates. Owner references would not help: where the API
        server guards them, writing one afterwards needs the right to delete anyway."""
        meta = request.metadata
        try:
            with contextlib.suppress(NotFound):
                await self._client.delete(
                    PROVISIONING_REQUESTS, meta.name, meta.namespace, uid=meta.uid
                )
        except Conflict:
            return  # another request has the name now
        log.info("no longer asks for nodes", request=meta.key)
        templates = (each.pod_template_ref.name for each in request.spec.pod_sets)
        for name in templates:
            # A request that only pretends to be ours must not delete templates of others.
            if name.startswith(f"{meta.name}-"):
                with contextlib.suppress(NotFound):
                    await self._client.delete(POD_TEMPLATES, name, meta.namespace)


def _decide(snapshot: Snapshot, keys: list[str]) -> tuple[ScaleUps, float]:
    """Which workloads are entitled to new nodes, and the CPU seconds of the decision."""
    started_s = time.thread_time()
    return scale_ups(snapshot, keys), time.thread_time() - started_s


def _workload_key(request: ProvisioningRequest) -> str:
    meta = request.metadata
    return f"{meta.namespace}/{meta.annotation(names.ANNOTATION_WORKLOAD)}"


def _requested(request: ProvisioningRequest) -> str:
    return request.metadata.annotation(names.ANNOTATION_REQUESTED)


def _asked_for(scale_up: ScaleUp) -> str:
    n_nodes = scale_up.n_nodes
    return "1 node is requested" if n_nodes == 1 else f"{n_nodes} nodes are requested"


def _note_of(scale_up: ScaleUp, name: str, request: ProvisioningRequest | None) -> str:
    """The note for a workload with a request of this name; `request` is None until it exists."""
    sentence = f"{_asked_for(scale_up)} by ProvisioningRequest {name}"
    if request is not None and (state := state_of(request)) in _OVER:
        sentence += f", which the autoscaler answered with {state}"
    return sentence
