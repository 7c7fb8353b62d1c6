"""The system of a trial: a control plane, nodes, projects, and our programs.

Two controllers, `serve` and the webhooks each reach the API server through their own proxy, which
can delay, cut or lose answers.
"""

import asyncio
import http.client
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from extender.api import names
from tests.support import workloads
from tests.support.auditor import Store
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, run_kubectl
from tests.support.controlplane.nodes import GpuNodes
from tests.support.controlplane.ports import LOOPBACK
from tests.support.faultproxy import FaultProxy
from tests.support.installation import MANIFESTS, SCHEDULER, Installation, Program, install
from tests.support.webhook_config import register_webhooks

NODES: Final = GpuNodes(8, gpus=4)
#: GPUs of each project; together less than the 32 of the nodes, so that quotas always fit.
QUOTAS: Final = {"team-a": 10, "team-b": 8, "team-c": 6, "probe": 2}
PROBE: Final = "probe"
#: Shorter than in a cluster, so that leaders change often; longer than a busy machine stands still.
LEASE_S: Final = 6.0
#: The programs of Kubernetes, in the order of their start.
KUBERNETES: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
#: Lifetime of events: for an hour, a thousand pods a minute leave too many for two cores.
EVENTS_KEPT: Final = "5m"
#: Seconds between two writes of GpuUsages; in a cluster they are written once a minute.
USAGE_S: Final = 2.0
NODE_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
POLL_S: Final = 0.2


#: Folder with the logs and objects at each missed deadline.
KEPT: Final = Path("build/faults")


class NotDoneError(Exception):
    """A fault had no effect, since there was nothing to act on."""


class _Proxied(Installation):
    """An installation in which each account reaches the API server through its own proxy."""

    def __init__(self, plane: ControlPlane, proxies: dict[str, FaultProxy]) -> None:
        self._proxies = proxies
        super().__init__(plane, lease_s=LEASE_S, usage_s=USAGE_S)

    def kubeconfig(self, account: str) -> str:
        return self.through(account, account)

    def through(self, proxy: str, account: str) -> str:
        """A kubeconfig of the account that goes through this proxy."""
        return self._proxies[proxy].kubeconfig(super().kubeconfig(account), self._plane.work)


class Stage:
    """The system under test. Programs of Ballast and of Kubernetes have names."""

    def __init__(self, plane: ControlPlane, proxies: dict[str, FaultProxy]) -> None:
        self.plane = plane
        self.admin = plane.admin
        self.proxies = proxies
        #: Events that faults count; crashes and armed programs by point.
        self.done: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()
        self.armed: Counter[str] = Counter()
        #: Programs that ended by themselves while they were armed.
        self.ended: list[str] = []
        self.installation = _Proxied(plane, proxies)
        other = self.installation.another_control(
            "other", self.installation.through("other", "ballast-control")
        )
        self.programs: dict[str, Program] = {
            "control": self.installation.control,
            "other": other,
            "serve": self.installation.serve,
            "webhooks": self.installation.webhooks(plane.work / "webhook-certs"),
        }

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Stage"]:
        """A ready control plane with eight nodes of four cards, projects, and our programs."""
        async with AsyncExitStack() as stack:
            plane = ControlPlane(flags={"kube-apiserver": [f"--event-ttl={EVENTS_KEPT}"]})
            await asyncio.to_thread(plane.start)
            stack.callback(plane.stop)
            await asyncio.to_thread(install, plane)
            accounts = ("ballast-scheduler", "ballast-control", "ballast-webhooks", "other")
            proxies = {
                name: await stack.enter_async_context(FaultProxy(plane.url)) for name in accounts
            }
            stage = cls(plane, proxies)
            stack.callback(stage._end)
            await asyncio.to_thread(stage._start)
            yield stage

    @property
    def store(self) -> Store:
        """The store that the auditor reads."""
        return Store(f"http://{LOOPBACK}:{self.plane.ports.etcd_client}")

    def leader(self) -> str:
        """The name of the controller that holds the Lease."""
        return self.term().split()[0]

    def term(self) -> str:
        """The name of the controller that holds the Lease, and the number of lease transitions."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases"
        spec = self.admin.get(f"{path}/ballast-control")["spec"]
        return f"{spec.get('holderIdentity') or '-'} {spec['leaseTransitions']}"

    # -- one program, ours or not -----------------------------------------------------------------

    def kill(self, name: str) -> None:
        """SIGKILL."""
        if name in self.programs:
            self.programs[name].kill()
        else:
            self.plane.kill(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        if name in self.programs:
            self.programs[name].freeze()
        else:
            self.plane.freeze(name)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        if name in self.programs:
            self.programs[name].thaw()
        else:
            self.plane.thaw(name)

    def start(self, name: str) -> None:
        """Start it again; does not wait until one of ours is ready."""
        if name in self.programs:
            self.programs[name].start_unready()
            return
        if name == "kwok":
            # A new kwok waits until the node leases of the previous one have expired.
            self.plane.kill(name)
            self.admin.delete(NODE_LEASES)
        self.plane.restart(name)

    def start_armed(self, name: str, failpoint: str) -> None:
        """Kill one of our programs and start it again with this failpoint armed."""
        self.programs[name].kill()
        self.programs[name].start_unready(failpoint)

    def dead(self) -> list[str]:
        """Names of programs that are not running."""
        alive = self.plane.pids()
        ours = [name for name, each in self.programs.items() if not each.is_alive]
        return [*(name for name in KUBERNETES if name not in alive), *ours]

    def drop_copy(self, copy: Path) -> None:
        """Remove a copy of etcd's data."""
        shutil.rmtree(copy, ignore_errors=True)

    # -- reading and writing ----------------------------------------------------------------------

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        found: list[dict[str, Any]] = self.admin.get(path)["items"]
        return found

    def end_pod(self, namespace: str, name: str) -> None:
        """End a pod as a kubelet does: write its final status and delete it."""
        pod = ("pod", name, "-n", namespace)
        failed = '{"status": {"phase": "Failed"}}'
        with suppress(subprocess.SubprocessError):
            run_kubectl(self.plane, "patch", *pod, "--subresource=status", f"--patch={failed}")
            run_kubectl(self.plane, "delete", *pod, "--grace-period=0", "--force", "--wait=false")

    def keep(self, name: str) -> Path:
        """Copy all logs and objects into a new folder; returns it."""
        folder = KEPT / f"{name}-{time.strftime('%H%M%S')}"
        shutil.copytree(self.plane.logs, folder, ignore=shutil.ignore_patterns("audit*"))
        for kind in ("pods", "jobs", "replicasets", "gpunodes", "gpupodgroups", "gpuprojects"):
            with suppress(subprocess.SubprocessError):
                found = run_kubectl(self.plane, "get", kind, "-A", "-o", "json")
                (folder / f"{kind}.json").write_text(found)
        return folder

    async def insist(self, act: Callable[[], object], within_s: float) -> bool:
        """Retry `act` until the API server accepts it; returns whether it did in time."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            try:
                await asyncio.to_thread(act)
            except (OSError, http.client.HTTPException, ApiRefusedError):
                await asyncio.sleep(POLL_S)
            else:
                return True
        return False

    # -- life ----------------------------------------------------------------------------------

    def _start(self) -> None:
        admin, plane = self.admin, self.plane
        run_kubectl(plane, "apply", "--server-side", "-k", str(MANIFESTS / "policies"))
        quota = sum(QUOTAS.values())
        admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", quota))
        for name, gpus in QUOTAS.items():
            plane.make_namespace(name)
            body = workloads.project(name, "research", name, gpus)
            admin.post(f"{workloads.API}/gpuprojects", body)
        (plane.work / "webhook-certs").mkdir()
        for name in ("control", "other", "serve", "webhooks"):
            self.programs[name].start_unready()
        plane.start_kwok()
        Cluster(plane, "default", SCHEDULER).add_nodes(NODES)
        for program in self.programs.values():
            program.wait_ready()
        self.installation.start_scheduler()
        self._register_webhooks()

    def _register_webhooks(self) -> None:
        ca = (self.plane.work / "webhook-certs" / "ca.crt").read_bytes()
        register_webhooks(self.admin, self.programs["webhooks"].port, ca)

    def _end(self) -> None:
        for program in self.programs.values():
            program.kill()
