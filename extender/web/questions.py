"""The pages' questions to the API server, always under the identity of their user.

Nothing is cached between two questions, so that a revoked right takes effect at once.
"""

import asyncio
from typing import Final, Protocol

import msgspec

from extender.api.kinds import GpuNode, GpuProject
from extender.api.names import API_PATH, VIEW_PATH
from extender.api.objects import Pod
from extender.cli.ask import said
from extender.kube.client import Client
from extender.kube.errors import KubeError, NotFound
from extender.kube.resources import GPU_NODES, PODS, PROJECTS, segment
from extender.kube.transport import Call
from extender.view.answers import (
    GROUP,
    Explanation,
    QueueList,
    ShareList,
    Simulation,
    SimulationSpec,
)
from extender.web.evictions import REASONS, Event, Fate, fate_of
from extender.web.usage import UsageRecord

#: Explaining a workload takes a few dozen decisions.
_DEADLINE_S: Final = 60.0
#: Events on one page.
_MOST_EVENTS: Final = 2000
#: Limit on pods that are looked up to determine whether they started.
_MOST_FATES: Final = 100
#: Limit on namespaces that are checked for access: each costs a request.
MOST_NAMESPACES: Final = 64
#: Pages of usage records.
_MOST_PAGES: Final = 40
#: How the message of an error begins.


class _Allowed(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Allowed


class _ListMeta(msgspec.Struct, rename={"next": "continue"}):
    next: str = ""


class _Records(msgspec.Struct):
    items: list[UsageRecord] = []
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Events(msgspec.Struct):
    items: list[Event] = []


class NoAnswerError(Exception):
    """The question has no answer; the message is for the user. `status` is the HTTP code."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Questions(Protocol):
    """The pages' questions. All methods raise NoAnswerError. An empty namespace means all."""

    async def queue(self, namespace: str, *, is_own_only: bool = False) -> QueueList:
        """Pending workloads in queue order; with `is_own_only`, without other namespaces."""

    async def explanation(self, namespace: str, name: str, *, is_tried: bool) -> Explanation:
        """Why a workload is pending; with `is_tried`, what would let it start, which takes long."""

    async def shares(self) -> ShareList:
        """The figures of every queue."""

    async def nodes(self) -> list[GpuNode]:
        """The ledger of every node."""

    async def projects(self) -> list[GpuProject]:
        """The projects; empty if the user may not read them."""

    async def readable(self, namespaces: list[str]) -> list[str]:
        """Namespaces with a queue that the user may read, of the first `MOST_NAMESPACES`."""

    async def pods(self, namespace: str) -> list[Pod]:
        """The pods of one namespace."""

    async def usage(self, month: str) -> list[UsageRecord]:
        """The records of a month, such as 2026-10."""

    async def simulate(self, spec: SimulationSpec) -> Simulation:
        """How the next decision would differ."""

    async def evictions(self, namespace: str) -> tuple[list[Event], dict[str, Fate]]:
        """Events about evictions, newest last, and the fate of their beneficiaries by UID."""


class ApiServer:
    """The questions, sent to an API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def queue(self, namespace: str, *, is_own_only: bool = False) -> QueueList:
        """Pending workloads in queue order."""
        space = f"/namespaces/{_segment(namespace)}" if namespace else ""
        path = f"{VIEW_PATH}{space}/queues"
        query = {"own": "true"} if is_own_only else {}
        return msgspec.json.decode(await self._ask(Call("GET", path, query=query)), type=QueueList)

    async def explanation(self, namespace: str, name: str, *, is_tried: bool) -> Explanation:
        """Why a workload is pending, and what would let it start."""
        path = f"{VIEW_PATH}/namespaces/{_segment(namespace)}/explanations/{_segment(name)}"
        query = {} if is_tried else {"tried": "false"}
        answer = await self._ask(Call("GET", path, query=query, deadline_s=_DEADLINE_S))
        return msgspec.json.decode(answer, type=Explanation)

    async def shares(self) -> ShareList:
        """The figures of every queue in each node pool."""
        answer = await self._ask(Call("GET", f"{VIEW_PATH}/shares"))
        return msgspec.json.decode(answer, type=ShareList)

    async def nodes(self) -> list[GpuNode]:
        """The ledger of every node."""
        try:
            return (await self._client.list_all(GPU_NODES)).items
        except KubeError as error:
            raise _refused(error) from error

    async def projects(self) -> list[GpuProject]:
        """The projects; empty if the user may not read them."""
        try:
            return (await self._client.list_all(PROJECTS)).items
        except KubeError as error:
            if error.status == 403:
                return []
            raise _refused(error) from error

    async def readable(self, namespaces: list[str]) -> list[str]:
        """Namespaces with a queue that the user may read, of the first `MOST_NAMESPACES`."""
        asked = namespaces[:MOST_NAMESPACES]
        may = await asyncio.gather(*map(self._may_read, asked))
        return [name for name, is_allowed in zip(asked, may, strict=True) if is_allowed]

    async def _may_read(self, namespace: str) -> bool:
        attributes = {
            "namespace": namespace, "verb": "list", "group": GROUP, "resource": "queues",
        }  # fmt: skip
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        call = Call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return msgspec.json.decode(await self._ask(call), type=_Review).status.allowed

    async def pods(self, namespace: str) -> list[Pod]:
        """The pods of one namespace."""
        try:
            return (await self._client.list_all(PODS, namespace=namespace)).items
        except KubeError as error:
            raise _refused(error) from error

    async def usage(self, month: str) -> list[UsageRecord]:
        """The records of a month, page by page."""
        found: list[UsageRecord] = []
        query = {"labelSelector": f"ballast.dev/month={month}", "limit": "500"}
        for _ in range(_MOST_PAGES):
            path = f"{API_PATH}/gpuusages"
            answer = await self._ask(Call("GET", path, query=query, deadline_s=_DEADLINE_S))
            page = msgspec.json.decode(answer, type=_Records)
            found += page.items
            if not page.metadata.next:
                break
            query = query | {"continue": page.metadata.next}
        return found

    async def simulate(self, spec: SimulationSpec) -> Simulation:
        """How the next decision would differ; nothing is stored."""
        body = {"spec": msgspec.to_builtins(spec)}
        call = Call("POST", f"{VIEW_PATH}/simulations", body=body, deadline_s=_DEADLINE_S)
        return msgspec.json.decode(await self._ask(call), type=Simulation)

    async def evictions(self, namespace: str) -> tuple[list[Event], dict[str, Fate]]:
        """Events about evictions, and the fate of each beneficiary by UID."""
        path = f"/api/v1/namespaces/{_segment(namespace)}/events" if namespace else "/api/v1/events"
        query = {
            "fieldSelector": "reportingComponent=ballast-controller,involvedObject.kind=Pod",
            "limit": str(_MOST_EVENTS),
        }
        answer = await self._ask(Call("GET", path, query=query, deadline_s=_DEADLINE_S))
        events = msgspec.json.decode(answer, type=_Events).items
        events = sorted((each for each in events if each.reason in REASONS), key=lambda e: e.when)
        pods = {each.beneficiary.uid: each for each in events if each.beneficiary}
        chosen = list(pods.items())[-_MOST_FATES:]
        fates = await asyncio.gather(*(self._fate(each) for _, each in chosen))
        return events, {uid: fate for (uid, _), fate in zip(chosen, fates, strict=True)}

    async def _fate(self, event: Event) -> Fate:
        """The fate of the eviction's beneficiary."""
        about = event.beneficiary
        assert about is not None
        try:
            pod: Pod | None = await self._client.get(PODS, about.name, about.namespace)
        except NotFound:
            pod = None
        except KubeError:
            return "unknown"
        if pod is not None and pod.metadata.uid == about.uid:
            return fate_of(pod)
        query = {"fieldSelector": f"involvedObject.uid={about.uid},reason=Scheduled", "limit": "1"}
        path = f"/api/v1/namespaces/{_segment(about.namespace)}/events"
        answer = await self._ask(Call("GET", path, query=query))
        return "started" if msgspec.json.decode(answer, type=_Events).items else "gone"

    async def _ask(self, call: Call) -> bytes:
        try:
            return await self._client.send(call)
        except KubeError as error:
            raise _refused(error) from error


def _segment(text: str) -> str:
    """One path segment, whatever the user typed; raises NoAnswerError for an invalid name."""
    try:
        return segment(text)
    except KubeError as error:
        raise NoAnswerError(error.message, 422) from None


def _refused(error: KubeError) -> NoAnswerError:
    return NoAnswerError(said(error), error.status or 503)
