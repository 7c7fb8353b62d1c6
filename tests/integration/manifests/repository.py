"""What a team keeps in its repository, and the platform team: a tool applies it again and again."""

import json
from typing import Any, Final

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.overlays import of_kind, rendered
from tests.support.webhook_config import REGISTRATION

#: Cards of the node of `scene`.
CARDS: Final = 4
GPU: Final = {"limits": {names.NVIDIA_GPU: "1"}}
HALF: Final = {"gpu-fraction": "0.5"}
#: Pods of `objects`.
N_PODS: Final = 7
Document = dict[str, Any]


def made(kind: str, name: str, spec: Document, **meta: Any) -> Document:
    """An object as its author writes it, in team-a where it has a namespace."""
    version = {"Job": "batch/v1", "Pod": "v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1"}
    metadata: Document = {"name": name, **meta}
    if kind != "GpuNodePool":
        metadata["namespace"] = "team-a"
    return {
        "apiVersion": version.get(kind, names.API_VERSION),
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def template(notes: Document, resources: Document, *, app: str = "", **spec: Any) -> Document:
    """A pod template of one container."""
    container: Document = {"name": "main", "image": "example.invalid/none"}
    if resources:
        container["resources"] = resources
    labels = {"labels": {"app": app}} if app else {}
    return {
        "metadata": labels | {"annotations": notes},
        "spec": {"containers": [container], **spec},
    }


def objects() -> list[Document]:
    """What a team keeps in its repository."""
    once = {"restartPolicy": "Never"}
    gang = template(HALF, {}, **once)
    gang["metadata"]["labels"] = {names.LABEL_POD_GROUP: "gang"}
    serving = {"replicas": 1, "selector": {"matchLabels": {"app": "llm"}}}
    tolerations = [{"key": names.NVIDIA_GPU, "operator": "Exists"}]
    notebook = template(HALF, {}, **once, tolerations=tolerations)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        made("GpuNodePool", "default", {"timeSlicing": {"mode": "Fair"}}),
        made("GpuPodGroup", "gang", {"subGroups": [{"name": "worker"}], "minMember": 2}),
        made("Job", "gang", {"parallelism": 2, "completions": 2, "template": gang}),
        made("Job", "train", {"template": template({}, GPU, **once)}),
        made("Job", "half", {"template": template(HALF, {}, **once)}),
        made("Deployment", "llm", serving | {"template": template({}, GPU, app="llm")}),
        made(
            "StatefulSet", "llm",
            serving | {"serviceName": "llm", "template": template(HALF, {}, app="llm")},
        ),
        made("Pod", "notebook", notebook["spec"], annotations=HALF),
    ]  # fmt: skip


def queues() -> list[Document]:
    """The department and the project of the team."""
    project = workloads.project("team-a", "research", "team-a", CARDS)
    return [workloads.department("research", 2 * CARDS), project]


def ballast(scene: Scene) -> list[Document]:
    """The overlay `default`, with the addresses of this test's webhooks, and without their CA."""
    documents: list[Document] = json.loads(json.dumps(rendered("default")))
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for each in of_kind(documents, *kinds):
        path = f"{REGISTRATION}/{each['kind'].lower()}s/{each['metadata']['name']}"
        live = {found["name"]: found for found in scene.admin.get(path)["webhooks"]}
        for webhook in each["webhooks"]:
            webhook["clientConfig"] = {"url": live[webhook["name"]]["clientConfig"]["url"]}
    return documents


def n_lines(scene: Scene) -> int:
    """Whole lines of the audit log."""
    return scene.plane.audit_log.read_text("utf-8").count("\n")


def as_list(documents: list[Document]) -> Document:
    """One object with all of them."""
    return {"apiVersion": "v1", "kind": "List", "items": documents}


def requests(scene: Scene, since: int, agent: str) -> list[Any]:
    """What programs of this user agent wrote or compared after so many lines of the audit log,
    events excepted."""
    text = scene.plane.audit_log.read_text("utf-8").rpartition("\n")[0]
    return [
        each
        for each in map(json.loads, text.splitlines()[since:])
        if each.get("userAgent", "").startswith(agent)
        and each["verb"] in ("create", "update", "patch", "delete")
        and each["objectRef"]["resource"] != "events"
    ]


def is_comparison(request: Any) -> bool:
    """Whether the request asked what a write would do."""
    return "dryRun" in request["requestURI"]


def remove_flow_schemas(scene: Scene) -> None:
    """Delete those of `ballast`: the store keeps them between tests
    (`tests.support.controlplane.store`)."""
    schemas = as_list(of_kind(rendered("default"), "FlowSchema"))
    scene.cluster.kubectl("delete", "--ignore-not-found", "-f-", stdin=json.dumps(schemas))
