"""The typed verbs: get, list, create, patch, delete, bind, evict. All writes go through here.

Deadlines, retries and the leader's fence are in `extender.kube.transport`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

from extender.kube.connection import Connection, Source
from extender.kube.errors import (
    DISRUPTION_BUDGET,
    Conflict,
    NotFound,
    Throttled,
    TooLarge,
    Unavailable,
)
from extender.kube.resources import PODS, KubeObject, Resource
from extender.kube.transport import DEADLINE_S, JSON, MAX_OBJECT_BYTES, Call, Transport
from extender.kube.wire import Page, decode_object, decode_page, read_cut_page

T = TypeVar("T", bound=KubeObject)

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

#: Of patches that other programs' webhooks may check: the API server gives up on a silent one after
#: 10 s, unless its configuration says otherwise, and then says so.
CHECKED_DEADLINE_S: Final = 12.0
#: Enough for a page of 500 pods from an API server that has just started.
LIST_DEADLINE_S: Final = 60.0
#: The page size of kubectl.
PAGE_LIMIT: Final = 500
#: A larger page is requested again with fewer objects. 500 typical pods are 4 MiB; 500 of the
#: largest that etcd stores would be 4 GiB.
PAGE_BYTES: Final = 16 * 2**20
#: The factor by which a page that was too large shrinks.
_SHRINK: Final = 8

FIELD_MANAGER: Final = "ballast"


class Selection(TypedDict, total=False):
    """The objects of a list or watch; all of the resource if empty."""

    namespace: str
    label_selector: str
    field_selector: str


class PageOptions(Selection, total=False):
    """The options of one page of a list."""

    limit: int
    continue_token: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The eviction was accepted; the pod is terminating."""


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A PodDisruptionBudget does not allow it now: choose other pods, or retry later."""

    retry_after_s: float
    message: str


@dataclass(frozen=True, slots=True)
class Gone:
    """No pod of this UID exists any more."""


class Client(Transport):
    """Typed access to one API server. Methods raise the errors of `extender.kube.errors`."""

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None = None,
        *,
        context: str | None = None,
        user_agent: str = "ballast",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Self:
        """A client from the kubeconfig, else $KUBECONFIG, else the pod's service account.

        Makes no request yet. Raises Misconfigured.
        """
        source = Source(kubeconfig or "", context or "", user_agent, headers)
        return cls(await Connection.open(source))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- reading ---------------------------------------------------------------------------------

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """The live object, never from a cache."""
        call = Call("GET", resource.url(namespace, name), resource.plural)
        return decode_object(resource, await self.send(call))

    async def list_page(self, resource: Resource[T], **options: Unpack[PageOptions]) -> Page[T]:
        """One page. With an empty `resource_version` the list is as new as the request."""
        query = selection_query(options)
        query["limit"] = str(options.get("limit", PAGE_LIMIT))
        if token := options.get("continue_token"):
            query["continue"] = token
        if version := options.get("resource_version"):
            query["resourceVersion"] = version
        path = resource.url(options.get("namespace", ""))
        call = Call(
            "GET", path, resource.plural, query=query, deadline_s=LIST_DEADLINE_S,
            max_bytes=PAGE_BYTES if query["limit"] != "1" else MAX_OBJECT_BYTES,
        )  # fmt: skip
        return decode_page(resource, await self.send(call))

    async def pages(
        self, resource: Resource[T], **selection: Unpack[Selection]
    ) -> AsyncGenerator[Page[T], None]:
        """All objects as of one moment, page by page; raises Expired if that moment is too old.

        A page has `PAGE_LIMIT` objects, or fewer to stay within `PAGE_BYTES`.
        """
        limit, token = PAGE_LIMIT, ""
        while True:
            try:
                page = await self.list_page(
                    resource, **selection, limit=limit, continue_token=token
                )
            except TooLarge as error:
                if limit > 1:
                    limit = max(1, limit // _SHRINK)
                    continue
                page = read_cut_page(resource, error.head)
            yield page
            token = page.continue_token
            if not token:
                return
            limit = _next_limit(limit, page)

    async def list_all(self, resource: Resource[T], **selection: Unpack[Selection]) -> Page[T]:
        """All objects as of one moment, in memory; raises Expired if that moment is too old."""
        whole: Page[T] = Page([])
        async with aclosing(self.pages(resource, **selection)) as pages:
            async for page in pages:
                whole.items.extend(page.items)
                whole.skipped.extend(page.skipped)
                whole.resource_version = page.resource_version
        return whole

    async def get_raw(self, path: str) -> bytes:
        """The body of a GET, for example of "/readyz" or "/version"."""
        return await self.send(Call("GET", path))

    # -- writing ---------------------------------------------------------------------------------

    async def create(self, resource: Resource[T], body: object, namespace: str = "") -> T:
        """The object as created; raises AlreadyExists."""
        return await self._write(resource, "POST", _target_of(resource, namespace), body)

    async def replace(
        self,
        resource: Resource[T],
        body: object,
        name: str,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The object as replaced; raises Conflict if `body` has an older resourceVersion."""
        target = _target_of(resource, namespace, name, subresource)
        return await self._write(resource, "PUT", target, body)

    async def merge_patch(
        self,
        resource: Resource[T],
        name: str,
        patch: object,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The patched object; metadata.resourceVersion in `patch` makes it a compare-and-swap."""
        target = _target_of(resource, namespace, name, subresource)
        return await self._patch(resource, target, patch, MERGE_PATCH)

    async def strategic_patch(
        self,
        resource: Resource[T],
        name: str,
        patch: object,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The patched object, lists merged by their keys; only for Kubernetes' built-in kinds.

        With metadata.uid in `patch`, raises Conflict if the object has another UID.
        """
        target = _target_of(resource, namespace, name, subresource)
        return await self._patch(resource, target, patch, STRATEGIC_PATCH, CHECKED_DEADLINE_S)

    async def json_patch(
        self,
        resource: Resource[T],
        name: str,
        ops: Sequence[Mapping[str, object]],
        namespace: str = "",
        *,
        resource_version: str = "",
    ) -> T:
        """The patched object.

        With `resource_version`, raises Conflict if the object has another version.
        """
        # A `test` operation on it would be answered with 422, as an invalid patch.
        where = {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}
        whole = [where, *ops] if resource_version else ops
        target = _target_of(resource, namespace, name)
        return await self._patch(resource, target, whole, JSON_PATCH)

    async def apply(
        self,
        resource: Resource[T],
        name: str,
        body: object,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The object after server-side apply of `body`, which takes over our fields by force."""
        target = _target_of(resource, namespace, name, subresource)
        return await self._patch(resource, target, resource.document(body), APPLY_PATCH)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
    ) -> None:
        """Request deletion; raises Conflict unless the object has this `uid` and version.

        `grace_s` replaces the pod's own grace period.
        """
        stated = {"uid": uid, "resourceVersion": resource_version}
        wanted = {key: value for key, value in stated.items() if value}
        body: dict[str, object] = {"preconditions": wanted} if wanted else {}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        path = resource.url(namespace, name)
        await self.send(Call("DELETE", path, resource.plural, body=body or None))

    async def bind(
        self,
        namespace: str,
        name: str,
        *,
        uid: str,
        node: str,
        annotations: Mapping[str, str],
        resource_version: str = "",
    ) -> None:
        """Set the pod's node and annotations in one write.

        Raises Conflict if the pod is already bound, has another UID, or is no longer at
        `resource_version`.
        """
        metadata: dict[str, object] = {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "annotations": dict(annotations),
        }
        if resource_version:
            metadata["resourceVersion"] = resource_version
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.url(namespace, name, "binding")
        await self.send(Call("POST", path, "pods/binding", body=body))

    async def evict(
        self,
        namespace: str,
        name: str,
        *,
        uid: str,
        grace_s: int | None = None,
        is_dry_run: bool = False,
    ) -> Evicted | EvictionRefused | Gone:
        """Evict exactly the pod of this UID, if its PodDisruptionBudgets allow it.

        `grace_s` replaces the pod's own grace period. A dry run changes nothing and answers the
        same. If the UID differs, the API server retries the conflict for ten seconds before it
        answers (its EvictionsRetry). So the pod is read only after an answer that leaves the
        outcome open.
        """
        options: dict[str, object] = {"preconditions": {"uid": uid}}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = PODS.url(namespace, name, "eviction")
        query = {"dryRun": "All"} if is_dry_run else {}
        try:
            await self.send(Call("POST", path, "pods/eviction", query=query, body=body))
        except NotFound:
            return Gone()
        except Throttled as error:
            if DISRUPTION_BUDGET not in error.causes:
                raise
            return EvictionRefused(error.retry_after_s, error.message)
        except (Conflict, Unavailable) as error:
            # The API server answers 500 for a pod that several budgets select. A retry never
            # helps, so it counts as a refusal.
            if "more than one PodDisruptionBudget" in error.message:
                return EvictionRefused(0.0, error.message)
            outcome = await self._read_outcome(namespace, name, uid)
            if outcome is None:
                raise
            return outcome
        return Evicted()

    async def _read_outcome(self, namespace: str, name: str, uid: str) -> Evicted | Gone | None:
        """Whether the pod of this UID is terminating or gone; None if it is neither."""
        try:
            pod = await self.get(PODS, name, namespace)
        except NotFound:
            return Gone()
        if pod.metadata.uid != uid:
            return Gone()
        return Evicted() if pod.metadata.deletion_timestamp else None

    async def _write(
        self, resource: Resource[T], method: str, target: tuple[str, str], body: object
    ) -> T:
        call = Call(method, *target, body=resource.document(body))
        return decode_object(resource, await self.send(call))

    async def _patch(
        self,
        resource: Resource[T],
        target: tuple[str, str],
        body: object,
        content: str,
        deadline_s: float = DEADLINE_S,
    ) -> T:
        query = {"fieldManager": FIELD_MANAGER}
        if content == APPLY_PATCH:
            query["force"] = "true"
        call = Call(
            "PATCH", *target, query=query, body=body, content_type=content, deadline_s=deadline_s
        )
        return decode_object(resource, await self.send(call))

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
    ) -> bytes:
        """The answer's body for any request, for kinds without a `Resource`."""
        call = Call(method, path, query=query or {}, body=body, content_type=content_type)
        return await self.send(call)


def _target_of(
    resource: Resource[Any], namespace: str, name: str = "", subresource: str = ""
) -> tuple[str, str]:
    """The path of a write, and its resource name in metrics and failpoints."""
    about = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return resource.url(namespace, name, subresource), about


def _next_limit(limit: int, page: Page[Any]) -> int:
    """The size of the next page: by the average object size, and at most doubled."""
    n_objects = len(page.items) + len(page.skipped) or limit
    by_size = PAGE_BYTES // 2 * n_objects // max(1, page.n_bytes)
    return max(1, min(PAGE_LIMIT, limit * 2, by_size))


def selection_query(selection: Mapping[str, Any]) -> dict[str, str]:
    """The query parameters of a list or watch for this selection."""
    query = {
        "labelSelector": selection.get("label_selector", ""),
        "fieldSelector": selection.get("field_selector", ""),
    }
    return {key: value for key, value in query.items() if value}
