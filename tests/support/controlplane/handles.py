"""The fixtures' objects: an empty API server, or an empty cluster.

Both use the session's control plane. `conftest.py` creates them.
"""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from extender.kube.client import Client
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.nodes import GpuNodes
from tests.support.controlplane.process import POLL_S, ControlPlaneError
from tests.support.controlplane.store import now

KUBECTL_TIMEOUT_S = 180
#: Deadline for nodes: two busy cores make about 30 nodes a second Ready, and then untaint them.
NODES_READY_S = 90.0
NODES_PER_S = 10
KINDS_SERVED_S = 90.0
LONGEST_POLL_S = 0.5


class Api:
    """An API server without objects of other tests, and a namespace for the test."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        self.kubeconfig = control_plane.kubeconfig
        self.url = control_plane.url

    async def client(self, kubeconfig: str | None = None) -> Client:
        """A client as administrator, or as the user of the kubeconfig; the caller closes it."""
        return await Client.connect(kubeconfig or self.kubeconfig)

    def kubectl(self, *args: str, stdin: str = "", kubeconfig: str = "") -> str:
        """The output of kubectl; raises CalledProcessError, with the output, if it fails."""
        return run_kubectl(self.control_plane, *args, stdin=stdin, kubeconfig=kubeconfig)


class Cluster(Api):
    """An `Api` with kube-scheduler, kwok and GPU nodes."""

    def __init__(
        self, control_plane: ControlPlane, namespace: str, scheduler_config: Path | None
    ) -> None:
        super().__init__(control_plane, namespace)
        self.scheduler_config = scheduler_config

    def start_scheduler(self, config: Path | None = None, *, extender_url: str = "") -> None:
        """Restart kube-scheduler with another configuration (None: the stock one)."""
        self.control_plane.start_scheduler(config, extender_url=extender_url)

    def add_gpu_nodes(
        self,
        n: int,
        gpus: int = 8,
        model: str = "A100",
        memory_mib: int = 81920,
        *,
        cpu: str = "96",
        memory: str = "512Gi",
        prefix: str = "gpu-node",
    ) -> list[str]:
        """Create `n` equal simulated nodes, wait until they are Ready, and return their names."""
        return self.add_nodes(GpuNodes(n, gpus, model, memory_mib, cpu, memory, prefix))

    def add_nodes(self, nodes: GpuNodes) -> list[str]:
        """Create these nodes and wait until all are Ready and schedulable."""
        names = nodes.names()
        self.control_plane.admin.post_all("/api/v1/nodes", nodes.manifests())
        wanted = set(names)
        within_s = NODES_READY_S + len(names) / NODES_PER_S
        wait_for(lambda: wanted <= self._ready_nodes(), within_s, f"{len(names)} ready nodes")
        return names

    def seed_nodes(self, nodes: GpuNodes) -> list[str]:
        """Write Ready nodes directly to etcd, thousands a second, for benchmarks.

        They bypass admission and have no not-ready taint; kwok only renews their leases.
        """
        store = self.control_plane.store
        store.put("minions", nodes.ready_manifests(now()))
        return nodes.names()

    def _ready_nodes(self) -> set[str]:
        items = self.control_plane.admin.get("/api/v1/nodes")["items"]
        return {each["metadata"]["name"] for each in items if _is_ready(each)}


def run_kubectl(
    control_plane: ControlPlane, *args: str, stdin: str = "", kubeconfig: str = ""
) -> str:
    """Run kubectl on a control plane as administrator, or as the user of the kubeconfig."""
    command = [control_plane.program("kubectl"), *args]
    env = os.environ | {
        "KUBECONFIG": kubeconfig or control_plane.kubeconfig,
        "KUBECACHEDIR": str(control_plane.work / "kubectl-cache"),
    }
    done = subprocess.run(
        command,
        input=stdin,
        env=env,
        capture_output=True,
        text=True,
        timeout=KUBECTL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note(done.stderr.strip())
        raise error
    return done.stdout


def apply_crds(control_plane: ControlPlane, folder: Path) -> int:
    """Apply all CRDs in `folder`, wait until the API serves them; returns the number of files."""
    files = [each for each in sorted(folder.glob("*.yaml")) if each.stem != "kustomization"]
    apply_kinds(control_plane, files)
    return len(files)


def apply_kinds(control_plane: ControlPlane, files: Sequence[Path]) -> None:
    """Apply the CRDs in these files, wait until the API serves them."""
    if not files:
        return
    named = [flag for file in files for flag in ("-f", str(file))]
    run_kubectl(control_plane, "apply", "--server-side", *named)

    def are_served() -> bool:
        # A new CRD has no conditions for a moment, which `kubectl wait` treats as an error.
        try:
            run_kubectl(control_plane, "wait", "--for=condition=Established", "--timeout=0", *named)
        except subprocess.CalledProcessError:
            return False
        return True

    wait_for(are_served, KINDS_SERVED_S, f"the kinds of {files[0].parent} to be served")


def wait_for(is_met: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return once the condition holds; raises ControlPlaneError, naming it, after the timeout."""
    deadline = time.monotonic() + timeout_s
    pause_s = POLL_S
    while not is_met():
        if time.monotonic() > deadline:
            raise ControlPlaneError(f"not seen in {timeout_s:.0f} s: {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LONGEST_POLL_S)


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", [])
    return not node["spec"].get("taints") and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )
