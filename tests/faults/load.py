"""Workloads that are submitted and deleted while faults happen, written as users write them.

The load keeps no state: it reads its objects from the API server, so it also sees those that a
restore of etcd brings back or removes.
"""

import contextlib
import http.client
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from extender.api import names
from tests.faults.stage import QUOTAS, Stage
from tests.support.controlplane.admin import ApiRefusedError

#: Projects of the load; the project of the probes is not used by the load.
PROJECTS: Final = ("team-a", "team-b", "team-c")
#: Annotation: milli-GPU that all pods of an object request together.
TOTAL: Final = "faults.ballast.dev/total-milli"
#: Requests of a project relative to its quota: above 1, so that projects borrow and reclaim.
GREED: Final = 1.6
RUN_S: Final = "simulation.ballast.dev/run-seconds"
STOP_S: Final = "simulation.ballast.dev/stop-seconds"
#: Errors of requests while a program is down.
DOWN: Final = (OSError, http.client.HTTPException, ApiRefusedError)
#: Label of all objects with the annotation `TOTAL`.
OWN: Final = "faults.ballast.dev/own"
#: Label of the Jobs of `stream_of`.
STREAM: Final = "faults.ballast.dev/stream"
#: What `borrow` submits.
BORROWER: Final = "borrower"
FOLDERS: Final = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Pod": "/api/v1/namespaces/{}/pods",
}


@dataclass(frozen=True, slots=True)
class Held:
    """An existing object of the load."""

    path: str
    created_at: str
    milli: int
    is_stream: bool


class Load:
    """Draws which workloads to submit and delete; each step is a few requests."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self._stage = stage
        self._random = random
        self._number = 0

    def borrow(self) -> None:
        """Submit work of one project that takes every idle GPU until the first `trim`, so that the
        others have to reclaim theirs."""
        body = _replicas(BORROWER, sum(QUOTAS.values()), 1000, asking(1000))
        body["metadata"]["labels"][STREAM] = "yes"
        self._stage.admin.post(FOLDERS[body["kind"]].format(PROJECTS[-1]), body)

    def step(self) -> None:
        """Submit or delete a workload of one project; does nothing while a fault prevents it."""
        project = self._random.choice(PROJECTS)
        with contextlib.suppress(*DOWN):
            held = [each for each in self.held(project) if not each.path.endswith(BORROWER)]
            asked = sum(each.milli for each in held)
            if asked < 1000 * QUOTAS[project] * GREED:
                self._submit(project)
            elif self._random.random() < 0.5:
                self._delete(self._random.choice(held))

    def trim(self) -> None:
        """Delete the streams of each project, since these always have pending pods, as the borrower
        has, and its newest objects until the rest is within its quota.

        Raises OSError or ApiRefusedError while the API server is not available.
        """
        for project in PROJECTS:
            held = sorted(self.held(project), key=lambda each: (each.created_at, each.path))
            asked = 0
            for each in held:
                if each.is_stream or asked + each.milli > 1000 * QUOTAS[project]:
                    self._delete(each)
                else:
                    asked += each.milli

    def held(self, project: str) -> list[Held]:
        """The project's objects that have not ended."""
        found = []
        for kind, folder in FOLDERS.items():
            path = folder.format(project)
            # Pods of Jobs and ReplicaSets count with their owners.
            for each in self._stage.items(f"{path}?labelSelector={OWN}"):
                meta = each["metadata"]
                milli = int(meta.get("annotations", {}).get(TOTAL, "0"))
                is_gone = "deletionTimestamp" in meta or (kind == "Pod" and has_ended(each))
                if milli and not is_gone:
                    place = f"{path}/{meta['name']}"
                    is_stream = STREAM in meta.get("labels", {})
                    found.append(Held(place, meta["creationTimestamp"], milli, is_stream))
        return found

    def _delete(self, held: Held) -> None:
        self._stage.admin.delete(held.path)

    def _submit(self, project: str) -> None:
        self._number += 1
        draw = self._random.choice(DRAWN)
        body = draw(f"{draw.__name__[1:].replace('_', '-')}-{self._number}", self._random)
        self._stage.admin.post(FOLDERS[body["kind"]].format(project), body)


def has_ended(pod: dict[str, Any]) -> bool:
    """Whether the pod's phase is final."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def asking(milli: int, run_s: int = 0, stop_s: int = 0) -> dict[str, Any]:
    """A pod template as users write it: whole GPUs in `nvidia.com/gpu`, or a fraction."""
    notes = {}
    if run_s:
        notes[RUN_S] = str(run_s)
    if stop_s:
        notes[STOP_S] = str(stop_s)
    amounts = {"cpu": "100m", "memory": "64Mi"}
    limits = dict(amounts)
    if milli % 1000:
        notes["gpu-fraction"] = f"0.{milli:03d}".rstrip("0")
    else:
        limits["nvidia.com/gpu"] = str(milli // 1000)
    container = {
        "name": "main",
        "image": "example.invalid/train",
        "resources": {"requests": amounts, "limits": limits},
    }
    return {
        "metadata": {"annotations": notes, "labels": {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": max(1, 10 * stop_s)},
    }


def _service(name: str, random: Random) -> dict[str, Any]:
    """Pods that run until they are deleted; evicted ones are created again at once."""
    n_pods, milli = random.choice(((3, 500), (4, 250), (2, 1000), (1, 2000), (5, 300), (1, 4000)))
    template = asking(milli, stop_s=random.choice((0, 0, 2)))
    return _replicas(name, n_pods, milli, template)


def _gang(name: str, random: Random) -> dict[str, Any]:
    """A gang that runs until it is deleted."""
    n_pods, milli = random.choice(((4, 1000), (6, 500), (3, 2000)))
    template = _grouped(asking(milli, stop_s=random.choice((0, 1))), name, n_pods)
    return _replicas(name, n_pods, milli, template)


def _gang_job(name: str, random: Random) -> dict[str, Any]:
    """A Job whose pods must run together."""
    n_pods, milli = random.choice(((4, 1000), (2, 1000), (8, 500)))
    template = asking(milli, run_s=random.randint(5, 25))
    return _job_of(name, n_pods, milli, _grouped(template, name, n_pods))


def job_of(name: str, random: Random) -> dict[str, Any]:
    """A Job whose pods need not run together."""
    n_pods, milli = random.choice(((1, 1000), (3, 500), (2, 2000), (6, 250)))
    return _job_of(name, n_pods, milli, asking(milli, run_s=random.randint(3, 20)))


def stream_of(name: str, random: Random) -> dict[str, Any]:
    """A Job of many pods that each run for a second, a few at a time."""
    n_pods, milli = random.choice(((10, 100), (8, 200), (6, 250), (4, 500)))
    body = _job_of(name, n_pods, milli, asking(milli, run_s=1))
    body["metadata"]["labels"][STREAM] = "yes"
    body["spec"]["completions"] = 15 * n_pods
    return body


def _bare(name: str, random: Random) -> dict[str, Any]:
    """A pod without an owner."""
    milli = random.choice((500, 1000, 1000))
    body = asking(milli, run_s=random.randint(5, 40))
    return bare_pod(name, milli, body)


#: Half of the submitted workloads are streams, which cause most Bindings; the others add variety.
DRAWN: Final = (
    *(_service, _service, _gang, _gang_job, job_of, job_of, _bare),
    *(stream_of,) * 7,
)


def bare_pod(name: str, milli: int, body: dict[str, Any]) -> dict[str, Any]:
    """A pod of this template without an owner."""
    body["metadata"] |= {"name": name}
    body["metadata"]["annotations"][TOTAL] = str(milli)
    body["metadata"]["labels"][OWN] = "yes"
    return {"apiVersion": "v1", "kind": "Pod", **body}


def _grouped(template: dict[str, Any], group: str, n_pods: int) -> dict[str, Any]:
    template["metadata"]["labels"][names.LABEL_POD_GROUP] = group
    template["metadata"]["annotations"][names.ANNOTATION_MIN_MEMBER] = str(n_pods)
    return template


def _metadata(name: str, milli: int) -> dict[str, Any]:
    return {"name": name, "annotations": {TOTAL: str(milli)}, "labels": {OWN: "yes"}}


def _replicas(name: str, n_pods: int, milli: int, template: dict[str, Any]) -> dict[str, Any]:
    template["metadata"]["labels"]["app"] = name
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": _metadata(name, n_pods * milli),
        "spec": {
            "replicas": n_pods,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def _job_of(name: str, n_pods: int, milli: int, template: dict[str, Any]) -> dict[str, Any]:
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, n_pods * milli),
        "spec": {
            "parallelism": n_pods,
            "completions": n_pods,
            "backoffLimit": 6,
            "ttlSecondsAfterFinished": 2,
            "template": template,
        },
    }
