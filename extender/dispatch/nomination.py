"""Writes the names of the nominated clusters, which Kueue reads.

`status.nominatedClusterNames` belongs to Kueue's field manager `kueue-admission`: when it admits a
Workload it applies its fields without that one, and the API server drops the field only if no other
manager owns it. So a nomination is an apply by that manager, as Kueue's documentation of external
dispatchers requires: all fields that it owns, unchanged, plus the names, and only on the version
that was read.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from extender.dispatch.kinds import KUEUE, WORKLOADS, Workload
from extender.kube.client import APPLY_PATCH, Client
from extender.kube.errors import RequestRefused
from extender.kube.wire import decode_object

#: Kueue's field manager for admission.
MANAGER: Final = "kueue-admission"
FIELD: Final = "nominatedClusterNames"


async def nominate(
    client: Client, workload: Mapping[str, Any], clusters: Sequence[str]
) -> Workload:
    """Nominate `clusters` for the Workload, given as read with its managed fields.

    Raises Conflict if it has changed since, RequestRefused if Kueue's fields are of another version
    of its API.
    """
    meta = workload["metadata"]
    body = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "status": {**_status_of(workload), FIELD: list(clusters)},
    }
    path = WORKLOADS.url(meta["namespace"], meta["name"], "status")
    query = {"fieldManager": MANAGER, "force": "true"}
    answer = await client.request("PATCH", path, query=query, body=body, content_type=APPLY_PATCH)
    return decode_object(WORKLOADS, answer)


def _status_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the status that Kueue's manager has applied."""
    for entry in workload["metadata"].get("managedFields") or ():
        written_by = entry.get("manager"), entry.get("operation"), entry.get("subresource")
        if written_by != (MANAGER, "Apply", "status"):
            continue
        if entry.get("apiVersion") != KUEUE:
            raise RequestRefused(
                f"Kueue writes Workloads as {entry.get('apiVersion')}; {KUEUE} is understood"
            )
        found = owned(workload, entry.get("fieldsV1") or {})
        status: dict[str, Any] = found.get("status", {})
        return status
    return {}


def owned(value: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an object that a `fieldsV1` names, which its manager would apply again."""
    found: dict[str, Any] = {}
    for key, below in fields.items():
        name = key.removeprefix("f:")
        if name != key and name in value:
            found[name] = _part(value[name], below)
    return found


def _part(value: Any, fields: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping) and fields:
        return owned(value, fields)
    if isinstance(value, list) and any(key.startswith("k:") for key in fields):
        return [
            keys | owned(item, below)
            for item in value
            for key, below in fields.items()
            if key.startswith("k:") and _has(item, keys := json.loads(key.removeprefix("k:")))
        ]
    if isinstance(value, list) and any(key.startswith("v:") for key in fields):
        members = [json.loads(key.removeprefix("v:")) for key in fields if key.startswith("v:")]
        return [item for item in value if item in members]
    return value


def _has(item: Any, keys: Mapping[str, Any]) -> bool:
    return isinstance(item, Mapping) and all(item.get(k) == v for k, v in keys.items())
