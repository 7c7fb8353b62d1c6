"""The typed verbs: get, list, create, patch, delete, bind, evict. The only door for writes.

How a request travels (deadlines, retries, the leader's fence) is `extender.kube.transport`.
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
from extender.kube.transport import JSON, MAX_OBJECT_BYTES, Call, Transport
from extender.kube.wire import Page, decode_object, decode_page, read_cut_page

T = TypeVar("T", bound=KubeObject)

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

#: For a page of 500 pods from an API server that has just started.
LIST_DEADLINE_S: Final = 60.0
#: Kubernetes lists in pages of 500, as kubectl does.
PAGE_LIMIT: Final = 500
#: A page above this size is asked for again with fewer objects. 500 common pods are 4 MiB; 500 of
#: the largest that etcd stores would be 4 GiB.
PAGE_BYTES: Final = 16 * 2**20
#: By how much a page shrinks that was too large.
_SHRINK: Final = 8

FIELD_MANAGER: Final = "ballast"


class Selection(TypedDict, total=False):
    """Which objects a list or watch is about; everything when empty."""

    namespace: str
    label_selector: str
    field_selector: str


class PageOptions(Selection, total=False):
    """How one page of a list is asked for."""

    limit: int
    continue_token: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The eviction was accepted; the pod is terminating."""


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A PodDisruptionBudget does not allow it now. Choose others, or ask again later."""

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
        """A client by kubeconfig, else $KUBECONFIG, else the pod's service account.

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
        """The object as it is now (never from a cache that may be old)."""
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
        """Every object of one moment, page by page; raises Expired if that moment passed.

        A page has `PAGE_LIMIT` objects, or as few as stay within `PAGE_BYTES`.
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
        """Every object of one moment, in memory at once; raises Expired if that moment passed."""
        whole: Page[T] = Page([])
        async with aclosing(self.pages(resource, **selection)) as pages:
            async for page in pages:
                whole.items.extend(page.items)
                whole.skipped.extend(page.skipped)
                whole.resource_version = page.resource_version
        return whole

    async def get_raw(self, path: str) -> bytes:
        """The body of a GET, such as of "/readyz" or "/version"."""
        return await self.send(Call("GET", path))

    # -- writing ---------------------------------------------------------------------------------

    async def create(self, resource: Resource[T], body: object, namespace: str = "") -> T:
        """The object as created; raises AlreadyExists."""
        return await self._write(resource, "POST", _place_of(resource, namespace), body)

    async def replace(
        self,
        resource: Resource[T],
        body: object,
        name: str,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The object as replaced; raises Conflict where `body` names an older resourceVersion."""
        place = _place_of(resource, namespace, name, subresource)
        return await self._write(resource, "PUT", place, body)

    async def merge_patch(
        self,
        resource: Resource[T],
        name: str,
        patch: object,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The object as patched; put metadata.resourceVersion into `patch` to compare and swap."""
        place = _place_of(resource, namespace, name, subresource)
        return await self._patch(resource, place, patch, MERGE_PATCH)

    async def strategic_patch(
        self,
        resource: Resource[T],
        name: str,
        patch: object,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The object as patched, lists by their merge keys; for Kubernetes' own kinds only.

        Put metadata.uid into `patch` to write to that very object: Conflict else.
        """
        place = _place_of(resource, namespace, name, subresource)
        return await self._patch(resource, place, patch, STRATEGIC_PATCH)

    async def json_patch(
        self,
        resource: Resource[T],
        name: str,
        ops: Sequence[Mapping[str, object]],
        namespace: str = "",
        subresource: str = "",
        *,
        resource_version: str = "",
    ) -> T:
        """The object as patched.

        With `resource_version` the patch lands only on that version of the object: Conflict else.
        """
        # A `test` of it would be answered with 422, as an invalid patch.
        where = {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}
        whole = [where, *ops] if resource_version else ops
        place = _place_of(resource, namespace, name, subresource)
        return await self._patch(resource, place, whole, JSON_PATCH)

    async def apply(
        self,
        resource: Resource[T],
        name: str,
        body: object,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """The object after server-side apply of `body`; our fields are taken over by force."""
        place = _place_of(resource, namespace, name, subresource)
        return await self._patch(resource, place, resource.document(body), APPLY_PATCH)

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
        """Asks for deletion; Conflict unless the object has this `uid` and `resource_version`.

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
        """Sets the pod's node and annotations in one write.

        Raises Conflict where the pod is bound already, has another UID, or is no longer at
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
        """Evicts exactly the pod of this UID, as far as its PodDisruptionBudgets allow.

        The pod has `grace_s` to end, by default what it states itself. A dry run changes nothing
        and answers the same. The API server takes the conflict of an eviction for another UID for
        a passing one and answers only after ten seconds (its EvictionsRetry), so the pod is read
        again only after an answer that leaves open what happened.
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
            # The API server answers 500 for a pod that several budgets select; asking again
            # never helps, so it is a refusal.
            if "more than one PodDisruptionBudget" in error.message:
                return EvictionRefused(0.0, error.message)
            became = await self._what_became_of(namespace, name, uid)
            if became is None:
                raise
            return became
        return Evicted()

    async def _what_became_of(self, namespace: str, name: str, uid: str) -> Evicted | Gone | None:
        """Whether the pod of this UID ends or has ended; None while it stays."""
        try:
            pod = await self.get(PODS, name, namespace)
        except NotFound:
            return Gone()
        if pod.metadata.uid != uid:
            return Gone()
        return Evicted() if pod.metadata.deletion_timestamp else None

    async def _write(
        self, resource: Resource[T], method: str, place: tuple[str, str], body: object
    ) -> T:
        call = Call(method, *place, body=resource.document(body))
        return decode_object(resource, await self.send(call))

    async def _patch(
        self, resource: Resource[T], place: tuple[str, str], body: object, content: str
    ) -> T:
        query = {"fieldManager": FIELD_MANAGER}
        if content == APPLY_PATCH:
            query["force"] = "true"
        call = Call("PATCH", *place, query=query, body=body, content_type=content)
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
        """The body of the answer to any request, for kinds without a `Resource`."""
        call = Call(method, path, query=query or {}, body=body, content_type=content_type)
        return await self.send(call)


def _place_of(
    resource: Resource[Any], namespace: str, name: str = "", subresource: str = ""
) -> tuple[str, str]:
    """The path of a write, and how metrics and failpoints name it."""
    about = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return resource.url(namespace, name, subresource), about


def _next_limit(limit: int, page: Page[Any]) -> int:
    """How many objects the next page may have: at most twice as many, and by their size."""
    n_objects = len(page.items) + len(page.skipped) or limit
    by_size = PAGE_BYTES // 2 * n_objects // max(1, page.n_bytes)
    return max(1, min(PAGE_LIMIT, limit * 2, by_size))


def selection_query(selection: Mapping[str, Any]) -> dict[str, str]:
    """The query parameters of a list or watch that stand for `selection`."""
    query = {
        "labelSelector": selection.get("label_selector", ""),
        "fieldSelector": selection.get("field_selector", ""),
    }
    return {key: value for key, value in query.items() if value}
