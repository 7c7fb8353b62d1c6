"""The cluster with Ballast on it, as the steps use it."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e import workloads
from tests.e2e.site import DEFINITIONS, NODE_SYSTEM, SYSTEM, Site
from tests.e2e.workloads import Manifest
from tests.gpu_node import image
from tests.gpu_node.results import Results, since
from tests.gpu_node.site import NODE, query
from tests.gpu_node.tenants import PROJECT, READY_S, VOLUME, Tenants, job, pod
from tests.support.node import RealNode

OVERLAY: Final = Path(__file__).with_name("overlay")
#: How far a pod's share of the time may be from its request.
POINTS: Final = 0.03
COMPUTE_S: Final = 15


def pool(**more: str) -> Manifest:
    """The node pool of all nodes, with time slices."""
    spec = {"timeSlicing": {"mode": "Strict"}, **more}
    metadata = {"name": "default"}
    return {
        "apiVersion": workloads.API,
        "kind": "GpuNodePool",
        "metadata": metadata,
        "spec": spec,
    }


@dataclass(slots=True, frozen=True)
class Stage:
    """The site, the pods of users on it, and where results go."""

    site: Site
    tenants: Tenants
    results: Results

    @property
    def node(self) -> RealNode:
        """The node."""
        assert self.site.node is not None
        return self.site.node

    def install(self) -> None:
        """README's installation, and what an administrator does for the node."""
        site, tell, started_s = self.site, self.results.tell, time.monotonic()
        for folder in (DEFINITIONS, OVERLAY):
            site.kubectl("apply", "--server-side", "-k", str(folder))
        until = ("--for=condition=Available", f"--timeout={READY_S:.0f}s")
        site.kubectl("wait", "-n", SYSTEM, "deployment", "--all", *until)
        tell("kubectl apply to all of ballast-system available, s", since(started_s))
        site.wait("the device plugin's GPU", READY_S, site.n_gpus, 1)
        tell("GPUs that NVIDIA's device plugin counts", site.n_gpus(), 1, True)
        site.apply(
            workloads.namespace(PROJECT),
            workloads.department(PROJECT, 1),
            workloads.project(PROJECT, PROJECT, 1),
            pool(),
        )
        site.offer_folder(VOLUME, PROJECT, str(image.ENVIRONMENT))
        self.wait_for_agent()
        tell("the node agent is Ready after, s", since(started_s))
        devices, uuid = self._status()["devices"], query("uuid")
        tell("the card in the GpuNode", devices, uuid, [each["uuid"] for each in devices] == [uuid])
        self.tell_conditions()

    def card_mib(self) -> int:
        """The card's memory as the agent reports it, which is what CUDA has: nvidia-smi shows half
        a percent more."""
        return int(self._status()["devices"][0]["memoryMiB"])

    def tell_conditions(self, expected: str = "") -> None:
        """Write down which conditions of the GpuNode are not true, and why."""
        false = {
            each["type"]: each.get("message", "")
            for each in self._status()["conditions"]
            if each["status"] != "True"
        }
        is_good = list(false) == ([expected] if expected else [])
        self.results.tell("conditions of the node that are not true", false, expected, is_good)

    def wait_for_agent(self) -> None:
        """Until the node's agent is Ready."""
        self.site.wait("the node agent", READY_S, self._n_ready, 1)

    def replace_agent(self) -> None:
        """Delete the agent's pod, and wait for the next one."""
        component = "app.kubernetes.io/component=gpu-shim"
        where = ("-n", NODE_SYSTEM, "-l", component)
        self.site.kubectl("delete", "pods", *where, "--timeout=60s")
        self.wait_for_agent()

    def configure_agent(self, **options: str) -> None:
        """Set options of the agent, and replace it."""
        data = {f"BALLAST_AGENT_{name}": value for name, value in options.items()}
        patch = ("--type=merge", "-p", json.dumps({"data": data}))
        self.site.kubectl("patch", "configmap", "ballast-agent", "-n", NODE_SYSTEM, *patch)
        self.replace_agent()

    def tell_half(self, name: str, what: str) -> None:
        """A pod with half of the card takes what it can get: that much, and no more."""
        started_s = time.monotonic()
        self.tenants.start(pod(name, job("alloc-native", 4), "0.5"))
        (seen,) = self.tenants.wait_for(name, 1)
        cap_mib = self.card_mib() // 2
        is_total = abs(seen["free_total_mib"][1] - cap_mib) <= 1
        is_good = is_total and 0.9 * cap_mib < seen["took_mib"] <= cap_mib
        self.results.tell(what, seen, f"{cap_mib} MiB in all", is_good)
        self.results.tell("its result after, s", since(started_s))

    def _n_ready(self) -> int:
        (found,) = self.site.get("daemonsets", "-n", NODE_SYSTEM)
        return int(found["status"].get("numberReady", 0))

    def _status(self) -> Manifest:
        status: Manifest = self.site.gpu_node(NODE)["status"]
        return status
