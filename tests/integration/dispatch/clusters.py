"""A manager cluster and two workers, each a control plane with Kueue; the workers have Ballast."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support import workloads
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, run_kubectl, wait_for
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.installation import MANIFESTS, Installation, Program, install
from tests.support.kueue.running import API, NAMESPACE, Kueue
from tests.support.webhook_config import register_webhooks

#: Seconds in which whatever is waited for comes about, on two busy cores.
DONE_S: Final = 180.0
#: What a worker has admitted is sent back if its pods are not ready after so many seconds.
READY_S: Final = 45
QUEUE: Final = "gpus"
TEAM: Final = "team-a"
CARDS: Final = 4
#: What an account of a worker cluster may do for Kueue on a manager (Kueue's setup guide), and for
#: the dispatcher: the one line of view.ballast.dev.
_ACCOUNT: Final = "multikueue"
_RULES: Final = [
    (["batch"], ["jobs"], ["create", "delete", "get", "list", "watch"]),
    (["batch"], ["jobs/status"], ["get"]),
    (["kueue.x-k8s.io"], ["workloads"], ["create", "delete", "get", "list", "update", "watch"]),
    (["kueue.x-k8s.io"], ["workloads/status"], ["get", "patch", "update"]),
    (["view.ballast.dev"], ["simulations"], ["create"]),
]


def queues(check: str = "") -> list[dict[str, Any]]:
    """One ClusterQueue of plenty, and the team's LocalQueue to it."""
    quota = {"nvidia.com/gpu": 64, "cpu": 640, "memory": "6400Gi"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    flavor = {"name": "any", "resources": resources}
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": list(quota), "flavors": [flavor]}],
    }
    if check:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
    return [
        _kueue("ResourceFlavor", "any", {}),
        _kueue("ClusterQueue", QUEUE, spec),
        _kueue("LocalQueue", QUEUE, {"clusterQueue": QUEUE}, TEAM),
    ]


def _kueue(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


class Worker:
    """A cluster with one node of `CARDS` GPUs, of which the team may have half."""

    def __init__(self, name: str, plane: ControlPlane, folder: Path) -> None:
        self.name = name
        self.plane = plane
        self.admin = plane.admin
        self._folder = folder
        self._installation = Installation(plane)
        self.view = self._installation.view()

    def kubeconfig(self) -> str:
        """What the Secret on the manager cluster holds: a token of an account of its own."""
        rules = [
            {"apiGroups": groups, "resources": resources, "verbs": verbs}
            for groups, resources, verbs in _RULES
        ]
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _ACCOUNT},
            "rules": rules,
        }
        run_kubectl(self.plane, "apply", "-f-", stdin=json.dumps(role))
        run_kubectl(self.plane, "create", "serviceaccount", _ACCOUNT, "-n", NAMESPACE)
        run_kubectl(
            self.plane, "create", "clusterrolebinding", _ACCOUNT, f"--clusterrole={_ACCOUNT}",
            f"--serviceaccount={NAMESPACE}:{_ACCOUNT}",
        )  # fmt: skip
        path = self.plane.kubeconfig_for_service_account(NAMESPACE, _ACCOUNT)
        return Path(path).read_text()

    @contextmanager
    def running(self) -> Iterator["Worker"]:
        """Ballast and Kueue run, and a node is ready."""
        with ExitStack() as stack:
            admin = self.admin
            admin.post(f"{workloads.API}/gpudepartments", workloads.department("lab", CARDS))
            for name in (TEAM, "locals"):
                self.plane.make_namespace(name)
                body = workloads.project(name, "lab", name, CARDS // 2)
                admin.post(f"{workloads.API}/gpuprojects", body)
                run_kubectl(self.plane, "label", "namespace", name, "ballast.dev/managed=true")
            stack.callback(self._installation.stop)
            self._installation.start()
            webhooks = self._installation.webhooks(self._folder / "certificates")
            for program in (webhooks, self.view):
                stack.callback(program.kill)
                program.start()
            ca = (self._folder / "certificates" / "ca.crt").read_bytes()
            register_webhooks(admin, webhooks.port, ca)
            Cluster(self.plane, "default", None).add_gpu_nodes(1, CARDS)
            kueue = Kueue(self.plane, self._folder / "kueue", ready_s=READY_S)
            kueue.install()
            stack.callback(kueue.kill)
            kueue.start()
            apply(self.plane, *queues())
            yield self

    def occupy(self, n_gpus: int) -> None:
        """Work of another project that stays."""
        body = workloads.job("stays", "locals", n_gpus, 1000)
        self.admin.post("/apis/batch/v1/namespaces/locals/jobs", body)
        wait_for(lambda: self.n_running("locals") == n_gpus, DONE_S, "the local work to run")

    def hold(self, policy: str) -> None:
        """Whether Kueue admits anything here: None or Hold."""
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        run_kubectl(self.plane, "patch", "clusterqueue", QUEUE, "--type=merge", f"--patch={patch}")

    def n_running(self, namespace: str) -> int:
        """Running pods of the namespace."""
        pods = self.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return sum(each["status"]["phase"] == "Running" for each in pods)

    def workloads(self) -> list[str]:
        """Names of Kueue's Workloads that the manager has sent."""
        listed = self.admin.get(f"{API}/namespaces/{TEAM}/workloads")["items"]
        return [each["metadata"]["name"] for each in listed]


@dataclass
class Manager:
    """The cluster that people submit to."""

    plane: ControlPlane

    def connect(self, name: str, kubeconfig: str | None) -> None:
        """A worker cluster by this name; without a kubeconfig its Secret has none."""
        data = {} if kubeconfig is None else {"kubeconfig": kubeconfig}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": encoded,
        }
        source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
        cluster = _kueue("MultiKueueCluster", name, {"clusterSource": source})
        apply(self.plane, secret, cluster)

    def join(self, *clusters: str) -> None:
        """The team's queue sends work to these clusters, the preferred first."""
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}
        spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
        apply(
            self.plane,
            _kueue("MultiKueueConfig", "workers", {"clusters": list(clusters)}),
            _kueue("AdmissionCheck", "workers", spec),
            *queues("workers"),
        )

    def submit(self, name: str, n_pods: int, gpus: int) -> None:
        """A Job as a researcher writes it: suspended by nobody, and with the queue's label."""
        limits = {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}
        container = {"name": "main", "image": "example", "resources": {"limits": limits}}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": TEAM,
                "labels": {"kueue.x-k8s.io/queue-name": QUEUE},
            },
            "spec": {
                "parallelism": n_pods,
                "completions": n_pods,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        }
        run_kubectl(self.plane, "create", "-f-", stdin=json.dumps(job))

    def delete(self, *jobs: str) -> None:
        """Delete these Jobs."""
        run_kubectl(self.plane, "delete", "job", "-n", TEAM, *jobs)

    def workload(self, job: str) -> dict[str, Any]:
        """The Workload that Kueue has made of the Job; empty while there is none."""
        listed = self.plane.admin.get(f"{API}/namespaces/{TEAM}/workloads")["items"]
        found = [
            each
            for each in listed
            if each["metadata"].get("ownerReferences", [{}])[0].get("name") == job
        ]
        return found[0] if found else {}

    def status(self, job: str) -> dict[str, Any]:
        """The status of the Job's Workload."""
        status: dict[str, Any] = self.workload(job).get("status", {})
        return status

    def told(self, job: str) -> dict[str, str]:
        """The condition that the dispatcher has written."""
        conditions = self.status(job).get("conditions", [])
        found = [each for each in conditions if each["type"] == "ballast.dev/Dispatched"]
        return found[0] if found else {"status": "", "reason": "", "message": ""}

    def dispatcher(self, name: str, reserve_s: int) -> Program:
        """`ballast dispatch` with the rights of the overlay, whose nominations hold for so long;
        the caller starts and ends it."""
        port = free_port()
        account = "system:serviceaccount:ballast-system:ballast-dispatch"
        groups = ("system:serviceaccounts", "system:serviceaccounts:ballast-system")
        argv = [
            "extender",
            "dispatch",
            f"--kubeconfig={self.plane.kubeconfig_for(account, groups)}",
            f"--metrics-listen={LOOPBACK}:{port}",
            f"--identity={name}",
            "--lease-duration=3",
            f"--reserve-within={reserve_s}",
            "--answer-within=10",
        ]
        return Program(name, argv, port, self.plane.logs / f"ballast-{name}.log")


def apply(plane: ControlPlane, *documents: dict[str, Any]) -> None:
    """Apply objects as administrator."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    run_kubectl(plane, "apply", "--server-side", "-f-", stdin=json.dumps(listed))


@contextmanager
def planes(folder: Path) -> Iterator[tuple[Manager, Worker, Worker]]:
    """The three clusters with everything but the dispatcher."""
    with ExitStack() as stack:
        manager, busy, free = (stack.enter_context(ControlPlane()) for _ in range(3))
        workers = []
        for name, plane in (("busy", busy), ("free", free)):
            install(plane)
            worker = Worker(name, plane, folder / name)
            workers.append(stack.enter_context(worker.running()))
        manager.make_namespace(TEAM)
        kueue = Kueue(manager, folder / "manager", dispatcher="ballast.dev/dispatch")
        kueue.install()
        run_kubectl(
            manager, "apply", "--server-side",
            "-f", str(MANIFESTS.parent / "overlays" / "dispatch" / "rbac.yaml"),
        )  # fmt: skip
        stack.callback(kueue.kill)
        kueue.start()
        yield Manager(manager), workers[0], workers[1]
