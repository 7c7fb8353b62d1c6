"""Detects effects of attempts: changed objects of others, and gains of the tenant."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.attempt import HARDENED, HOME, OURS, Body
from tests.attacks.raw_client import RawClient

MINE: Final = (HOME, HARDENED)
#: The tenant's project, its limit, and the priority classes that it may use.
PROJECT: Final = "mallory"
LIMIT_MILLI: Final = 1000
CLASSES: Final = ("ballast-training", "ballast-build", "ballast-interactive")
#: The tenant's own pods are not listed, since some attempts make them as large as possible.
_OTHERS: Final = ",".join(f"metadata.namespace!={each}" for each in MINE)
#: Lists that are compared after every stored attempt.
NARROW: Final = (f"/api/v1/pods?fieldSelector={_OTHERS}", f"{OURS}/gpunodes")
#: Lists that are compared before and after all attempts of a threat.
WIDE: Final = (
    *NARROW,
    *(
        f"{OURS}/{kind}"
        for kind in ("gpuprojects", "gpudepartments", "gpunodepools", "gputopologies")
    ),
    f"{OURS}/gpupodgroups",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/secrets",
    "/api/v1/configmaps",
    "/api/v1/serviceaccounts",
    "/api/v1/resourcequotas",
    "/api/v1/persistentvolumes",
    "/apis/apps/v1/deployments",
    "/apis/batch/v1/jobs",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
)
_HEAD: Final = (
    "namespace", "name", "uid", "labels", "annotations", "ownerReferences", "finalizers",
    "deletionTimestamp",
)  # fmt: skip
#: Fields of a status that may not change; others (times, requests, fair shares) may.
_KEPT: Final = ("phase", "nominatedNodeName", "allocatable", "capacity", "devices", "allocated")
#: States of a row that count as equal, since both hold cards.
_SETTLED: Final = {"reserved": {"state": "held"}, "bound": {"state": "held"}}


class Judge:
    """Reads as administrator. A picture maps objects to digests of their relevant fields."""

    def __init__(self, admin: RawClient) -> None:
        self._admin = admin

    def picture(self, paths: tuple[str, ...] = WIDE) -> dict[str, str]:
        """Objects of others: path and name -> digest."""
        return {
            f"{path}/{_name(item)}": _digest(item)
            for path in paths
            for item in self._items(path)
            if item["metadata"].get("namespace") not in MINE
        }

    def gains(self) -> Iterator[str]:
        """What the tenant has beyond its rights."""
        rows = [
            (node["metadata"]["name"], row)
            for node in self._items(f"{OURS}/gpunodes")
            for row in node["spec"].get("rows") or ()
            if row["namespace"] in MINE
        ]
        # Read after the rows, since a row exists until the controller frees it.
        pods = [each for space in MINE for each in self._items(f"/api/v1/namespaces/{space}/pods")]
        alive = {each["metadata"]["uid"] for each in pods}
        held = {
            row["name"]: sum(card["milli"] for card in row.get("cards") or ())
            for _, row in rows
            if row["state"] != "nominated" and row["uid"] in alive
        }
        if sum(held.values()) > LIMIT_MILLI:
            yield f"the tenant holds {held} milli, its limit is {LIMIT_MILLI}"
        for node, row in rows:
            if row.get("project") != PROJECT:
                yield f"a row on {node} counts against {row.get('project')!r}"
        places = {(row["uid"], node) for node, row in rows}
        for item in pods:
            yield from _pod_gains(item, places)

    def _items(self, path: str) -> list[Body]:
        answer = self._admin.send("GET", path)
        assert answer.status == 200, (path, answer)
        items: list[Body] = answer.body["items"]
        return items


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The changed objects."""
    keys = sorted(before.keys() | after.keys())
    return [key for key in keys if before.get(key) != after.get(key)]


def _pod_gains(item: Body, places: set[tuple[str, str]]) -> Iterator[str]:
    meta, spec = item["metadata"], item["spec"]
    name = f"{meta['namespace']}/{meta['name']}"
    project = meta.get("labels", {}).get("ballast.dev/project", PROJECT)
    if project != PROJECT:
        yield f"{name} counts against {project!r}"
    if not asks_for_gpus(item):
        return
    node = spec.get("nodeName")
    if node and (meta["uid"], node) not in places:
        yield f"{name} is on {node} without a row in the ledger"
    if spec.get("priorityClassName") not in CLASSES:
        yield f"{name} has the priority class {spec.get('priorityClassName')!r}"
    is_plain = spec.get("schedulerName") != "ballast-scheduler"
    if is_plain and not meta.get("deletionTimestamp"):
        yield f"{name} asks for GPUs of {spec.get('schedulerName')!r}"


def asks_for_gpus(item: Body) -> bool:
    """Whether a pod requests GPUs in a way that a node would honour."""
    notes = item["metadata"].get("annotations", {})
    if "gpu-fraction" in notes or "gpu-memory" in notes:
        return True
    spec = item["spec"]
    return any(
        name.startswith(("nvidia.com/", "ballast.dev/"))
        for each in (*spec["containers"], *spec.get("initContainers", ()))
        for field in ("limits", "requests")
        for name in each.get("resources", {}).get(field) or ()
    )


def _name(item: Body) -> str:
    meta = item["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _digest(item: Body) -> str:
    """A digest of the relevant fields of an object."""
    kept: dict[str, Any] = {key: item["metadata"].get(key) for key in _HEAD}
    kept |= {key: part for key, part in item.items() if key not in ("metadata", "status")}
    is_tenants = _name(item) == f"/{PROJECT}"
    status = {} if is_tenants else item.get("status", {})
    kept["status"] = {key: status.get(key) for key in _KEPT}
    if "rows" in kept.get("spec", {}):
        rows = (row for row in kept["spec"]["rows"] if row["namespace"] not in MINE)
        # A row becomes `bound` with another write of its node, or five minutes after the Binding.
        kept["spec"] = {"rows": [row | _SETTLED.get(row["state"], {}) for row in rows]}
    if kept["status"]["allocated"] is not None and "department" not in kept.get("spec", {}):
        # A department's sum includes the tenant's own project.
        kept["status"]["allocated"] = None
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
