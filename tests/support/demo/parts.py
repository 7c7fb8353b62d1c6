"""Everything that runs in the demonstration, started in order and ended with us."""

import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from tests.support.auditor import Store
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_crds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.process import Process
from tests.support.demo.trace import EXAMPLES, TraceNode, node_object
from tests.support.webhook_config import webhook_configurations

ROOT: Final = EXAMPLES.parent
MANIFESTS: Final = ROOT / "manifests" / "base"
PROGRAMS: Final = ROOT / ".venv" / "bin"
NAMESPACE: Final = "ballast-system"
READY_S: Final = 60.0
GRACE_S: Final = 3.0


class Parts:
    """The control plane with Ballast on it. A context manager; blocking."""

    def __init__(self) -> None:
        self.plane = ControlPlane()
        self._processes: list[Process] = []
        self._certificates = Path(tempfile.mkdtemp(prefix="ballast-demo-"))
        self._ports = free_ports(3)
        #: Set when something did not go as it should: the logs then outlive us.
        self.keeps_logs = False

    def __enter__(self) -> Self:
        try:
            self.plane.start()
        except BaseException:
            shutil.rmtree(self._certificates, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            process.end(GRACE_S)
        shutil.rmtree(self._certificates, ignore_errors=True)
        self.keeps_logs |= isinstance(error, Exception)  # being told to end is no failure
        self.plane.stop(is_kept=self.keeps_logs)
        if self.keeps_logs:
            print(f"logs kept: {self.plane.logs}")

    @property
    def store(self) -> Store:
        """Where the auditor reads."""
        return Store(f"http://{LOOPBACK}:{self.plane.ports.etcd_client}")

    def install(self) -> None:
        """What `kubectl apply` would bring: definitions, priority classes, rights, queues."""
        apply_crds(self.plane, MANIFESTS / "crds")
        for folder in ("priority-classes", "rbac"):
            run_kubectl(self.plane, "apply", "--server-side", "-k", str(MANIFESTS / folder))
        queues = EXAMPLES / "queues.yaml"
        run_kubectl(self.plane, "apply", "--server-side", "-f", str(queues))
        for document in yaml.safe_load_all(queues.read_text()):
            for namespace in document["spec"].get("namespaces", []):
                self.plane.make_namespace(namespace)

    def start_ballast(self) -> None:
        """Our three processes and the scheduler, each with its own account's rights."""
        verbs, metrics, webhooks = self._ports
        self._start(
            "serve",
            [self._program("ballast"), "serve", "--listen", f"{LOOPBACK}:{verbs}"],
            account="ballast-scheduler",
        )
        self._start(
            "control",
            [self._program("ballast"), "control", "--metrics-listen", f"{LOOPBACK}:{metrics}"],
            account="ballast-control",
        )
        self._start(
            "webhooks",
            [
                self._program("ballast-webhooks"),
                "--listen",
                f"{LOOPBACK}:{webhooks}",
                "--cert-dir",
                str(self._certificates),
            ],
            account="ballast-webhooks",
        )
        serve, control, hooks = self._processes
        serve.wait_until(lambda: _answers(f"http://{LOOPBACK}:{verbs}/readyz"), READY_S)
        control.wait_until(lambda: _answers(f"http://{LOOPBACK}:{metrics}/readyz"), READY_S)
        hooks.wait_until(lambda: _answers(f"https://{LOOPBACK}:{webhooks}/readyz"), READY_S)
        authority = (self._certificates / "ca.crt").read_bytes()
        for configuration in webhook_configurations(f"https://{LOOPBACK}:{webhooks}", authority):
            kind = configuration["kind"].lower()
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}s"
            self.plane.admin.ensure(path, configuration)
        self.plane.start_scheduler(
            MANIFESTS / "scheduler", extender_url=f"http://{LOOPBACK}:{verbs}"
        )
        self.plane.start_kwok()

    def add_nodes(self, nodes: list[TraceNode]) -> None:
        """Create the nodes; returns when kube-scheduler may use them."""
        self.plane.admin.post_all("/api/v1/nodes", [node_object(node) for node in nodes])
        # The controller publishes their cards; if it ends meanwhile, its log says why.
        self._processes[1].wait_until(lambda: self._n_usable() == len(nodes), READY_S)

    def _n_usable(self) -> int:
        return sum(
            not each["spec"].get("taints")
            and "ballast.dev/gpu-milli" in each["status"].get("allocatable", {})
            for each in self.plane.admin.get("/api/v1/nodes")["items"]
        )

    def _start(self, name: str, argv: list[str], *, account: str) -> None:
        user = f"system:serviceaccount:{NAMESPACE}:{account}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
        argv = [*argv, "--kubeconfig", self.plane.kubeconfig_for(user, groups)]
        process = Process(name, argv, self.plane.logs / f"ballast-{name}.log")
        self._processes.append(process)
        process.start()

    def _program(self, name: str) -> str:
        return str(PROGRAMS / name)


def _answers(url: str) -> bool:
    """Whether a GET is answered with 200. The certificate is not looked at: readiness only."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=1, context=trust) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
