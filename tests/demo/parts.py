"""The programs of the demonstration, started in order and ended with it."""

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from tests.demo.trace import EXAMPLES, TraceNode, node_object
from tests.support.auditor import Store
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl
from tests.support.controlplane.ports import LOOPBACK
from tests.support.installation import MANIFESTS, Installation, Program, install
from tests.support.webhook_config import register_webhooks

READY_S: Final = 60.0


class Parts:
    """The control plane with Ballast on it. A context manager; all methods block."""

    def __init__(self) -> None:
        self.plane = ControlPlane()
        self._ballast: Installation | None = None
        self._webhooks: Program | None = None
        self._view: Program | None = None
        self._certificates = Path(tempfile.mkdtemp(prefix="ballast-demo-"))
        #: Whether the logs are kept at the end, since something failed.
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
        if self._ballast is not None:
            self._ballast.control.end()
            self._ballast.serve.end()
        for program in (self._webhooks, self._view):
            if program is not None:
                program.end()
        shutil.rmtree(self._certificates, ignore_errors=True)
        self.keeps_logs |= isinstance(error, Exception)  # a request to end is not a failure
        self.plane.stop(is_kept=self.keeps_logs)
        if self.keeps_logs:
            print(f"logs kept: {self.plane.logs}")

    @property
    def store(self) -> Store:
        """The store that the auditor reads."""
        return Store(f"http://{LOOPBACK}:{self.plane.ports.etcd_client}")

    def install(self) -> None:
        """Apply the manifests and the queues of the example."""
        install(self.plane)
        run_kubectl(self.plane, "apply", "--server-side", "-k", str(MANIFESTS / "policies"))
        queues = EXAMPLES / "queues.yaml"
        run_kubectl(self.plane, "apply", "--server-side", "-f", str(queues))
        for document in yaml.safe_load_all(queues.read_text()):
            for namespace in document["spec"].get("namespaces", []):
                self.plane.make_namespace(namespace)

    def start_ballast(self) -> None:
        """Start our three programs, kube-scheduler with the extender, and kwok."""
        ballast = self._ballast = Installation(self.plane)
        hooks = self._webhooks = ballast.webhooks(self._certificates)
        hooks.start_unready()
        ballast.start()
        hooks.wait_ready()
        ca = (self._certificates / "ca.crt").read_bytes()
        register_webhooks(self.plane.admin, hooks.port, ca)

    def start_view(self) -> None:
        """Start `ballast view`; returns when it is ready."""
        assert self._ballast is not None, "start_ballast comes first"
        self._view = self._ballast.view()
        self._view.start()

    def add_nodes(self, nodes: list[TraceNode]) -> None:
        """Create the nodes; returns when they are schedulable."""
        self.plane.admin.post_all("/api/v1/nodes", [node_object(node) for node in nodes])
        assert self._ballast is not None, "start_ballast comes first"
        # The controller publishes their cards; if it ends meanwhile, its log says why.
        self._ballast.control.wait_until(lambda: self._n_usable() == len(nodes), READY_S)

    def _n_usable(self) -> int:
        return sum(
            not each["spec"].get("taints")
            and "ballast.dev/gpu-milli" in each["status"].get("allocatable", {})
            for each in self.plane.admin.get("/api/v1/nodes")["items"]
        )
