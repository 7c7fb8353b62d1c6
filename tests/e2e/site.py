"""The cluster that the stories run on, seen through kubectl only.

Either one that is given (`BALLAST_E2E_KUBECONFIG`), with at least four GPUs and our image on its
nodes, or one of our own: a real control plane, a real node with kubelet and containerd, and
simulated nodes beside it.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import workloads
from tests.e2e.escapes import build_static
from tests.support import fakecuda
from tests.support.controlplane.binaries import find_binaries
from tests.support.controlplane.nodes import GpuNodes
from tests.support.kube_router.running import can_enforce, enforce_policies
from tests.support.node import NodeControlPlane, NodeOptions, RealNode
from tests.support.node.images import write_pause_image, write_program_image

ROOT = Path(__file__).resolve().parents[2]
KUBECONFIG = "BALLAST_E2E_KUBECONFIG"
DEFINITIONS = ROOT / "manifests" / "overlays" / "crds"
OVERLAY = ROOT / "manifests" / "overlays" / os.environ.get("BALLAST_E2E_OVERLAY", "default")
SYSTEM = "ballast-system"
NODE_SYSTEM = "ballast-node"
#: Nodes with it get the node agent.
AGENT_LABEL = "nvidia.com/gpu.present=true"
REAL_NODE = "real-0"
REAL_GPUS = 2
REAL_MIB = 16384
SIMULATED = GpuNodes(2, gpus=4, prefix="simulated", cpu="32", memory="128Gi")
LEAST_GPUS = 4
LABEL = "app.kubernetes.io/part-of=ballast"
AGENT_FOLDER = "/var/lib/ballast"
#: A card that pods may share, and that the driver shows to the agent.
CARD_FOLDER = f"{AGENT_FOLDER}/card"
KUBECTL_TIMEOUT_S = 240.0
POLL_S = 0.5
GPU_LABELS = {
    "nvidia.com/gpu.count": str(REAL_GPUS),
    "nvidia.com/gpu.memory": str(REAL_MIB),
    "nvidia.com/gpu.product": "A100",
}
Manifest = dict[str, Any]


class NotSeenError(AssertionError):
    """What a story waits for did not come; the message says what was seen instead."""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and a kubectl for it. `node` and `plane` where they are ours."""

    kubectl_path: str
    kubeconfig: str
    node: RealNode | None = None
    plane: NodeControlPlane | None = None

    @property
    def real_node(self) -> str:
        """Name of the real node, if that is ours."""
        return self.node.name if self.node is not None else ""

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl printed; CalledProcessError, with its words, when it failed."""
        done = self._run([self.kubectl_path, *arguments], stdin)
        if done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, ["kubectl", *arguments])
            error.add_note(done.stderr.strip())
            raise error
        return done.stdout

    def ballast(self, command: str, namespace: str, *arguments: str) -> str:
        """What `ballast` on this machine printed, whether it succeeded or not."""
        argv = [sys.executable, "-m", "extender", command, "-n", namespace, *arguments]
        done = self._run(argv)
        return done.stdout + done.stderr

    def _run(self, argv: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            input=stdin,
            env=os.environ | {"KUBECONFIG": self.kubeconfig},
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT_S,
            check=False,
        )

    def get(self, *what: str) -> list[Manifest]:
        """The objects that `kubectl get` finds."""
        items: list[Manifest] = json.loads(self.kubectl("get", *what, "-o", "json"))["items"]
        return items

    def apply(self, *objects: Manifest) -> None:
        """`kubectl apply` of these objects."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def pods(self, namespace: str, phase: str = "", **labels: str) -> list[str]:
        """Names of the pods that are not on their way out, of one phase if one is given."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found = self.get("pods", "-n", namespace, "-l", selector)
        return [
            each["metadata"]["name"]
            for each in found
            if "deletionTimestamp" not in each["metadata"]
            and phase in ("", each["status"].get("phase"))
        ]

    def wait(self, what: str, timeout_s: float, look: Callable[[], Any], wanted: Any) -> None:
        """Return once `look()` sees what is wanted; NotSeenError, with what it saw last."""
        deadline = time.monotonic() + timeout_s
        while (seen := look()) != wanted:
            if time.monotonic() > deadline:
                raise NotSeenError(f"{what}: wanted {wanted} in {timeout_s:.0f} s, saw {seen}")
            time.sleep(POLL_S)

    def reasons(self, namespace: str, pod: str) -> set[str]:
        """The reasons in the events of a pod."""
        found = self.get("events", "-n", namespace, f"--field-selector=involvedObject.name={pod}")
        return {each["reason"] for each in found}

    def gpu_node(self, name: str) -> Manifest:
        """The GpuNode of a node."""
        (found,) = self.get("gpunodes", f"--field-selector=metadata.name={name}")
        return found

    def offer_folder(self, name: str, namespace: str, path: str) -> None:
        """A claim of this name, bound to a volume of it: a folder of the node."""
        self.apply(workloads.claim(name, namespace))
        where = ("-n", namespace, f"--field-selector=metadata.name={name}")
        (claimed,) = self.get("persistentvolumeclaims", *where)
        self.apply(workloads.volume(name, path, claimed))
        bound = ("--subresource=status", "-p", '{"status":{"phase":"Bound"}}')
        kind = "persistentvolumeclaim"
        self.kubectl("patch", kind, name, "-n", namespace, "--type=merge", *bound)

    def image(self) -> str:
        """The name of our image as it is installed."""
        path = "jsonpath={.spec.template.spec.containers[0].image}"
        return self.kubectl("get", "deployment", "ballast-control", "-n", SYSTEM, "-o", path)

    def n_gpus(self) -> int:
        """Whole GPUs of all nodes."""
        nodes = self.get("nodes")
        return sum(int(each["status"]["allocatable"].get("nvidia.com/gpu", 0)) for each in nodes)


@contextmanager
def given_site(kubeconfig: str) -> Iterator[Site]:
    """The cluster that a kubeconfig leads to."""
    kubectl = shutil.which("kubectl") or str(find_binaries()["kubectl"])
    yield Site(kubectl, kubeconfig)


@contextmanager
def own_site(image: Path, has_failed: Callable[[], bool]) -> Iterator[Site]:
    """A cluster of our own, with our image on its real node; gone afterwards.

    When something failed its logs stay, with what the pods said.
    """
    plane = NodeControlPlane()
    plane.start()
    files = driver_files(plane.work / "driver")
    node = RealNode(plane, NodeOptions(REAL_NODE, labels=GPU_LABELS, files=files))
    site = Site(plane.program("kubectl"), plane.kubeconfig, node, plane)
    try:
        plane.start_scheduler()
        plane.start_kwok()
        node.start()
        if can_enforce():
            enforce_policies(plane, node)
        node.import_image(image)
        node.import_image(scheduler_image(plane))
        _give_gpus(site, REAL_NODE, REAL_GPUS)
        plane.admin.post_all("/api/v1/nodes", SIMULATED.manifests())
        close_simulated(site)
        yield site
    finally:
        is_kept = has_failed()
        if is_kept:
            _keep_words(site, plane.logs)
        node.stop()
        plane.stop(is_kept=is_kept)


def is_enforcing(site: Site) -> bool:
    """Whether the site's own node enforces network policies."""
    return site.node is not None and can_enforce()


def close_simulated(site: Site) -> None:
    """Keep new pods off the simulated nodes, if the site has any: our own belong on the real one,
    since nothing runs on the others."""
    if site.real_node:
        site.kubectl("cordon", *SIMULATED.names())


def open_simulated(site: Site) -> None:
    """Let pods on the simulated nodes, if the site has any, and wait until they are ready."""
    if site.real_node:
        site.kubectl("wait", "--for=condition=Ready", "--timeout=120s", *_simulated())
        site.kubectl("uncordon", *SIMULATED.names())


def _keep_words(site: Site, folder: Path) -> None:
    """Write down what a failure is understood by, as far as the cluster still answers."""
    commands = {
        "pods.txt": ["describe", "pods", "--all-namespaces"],
        "events.txt": ["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
        "ballast.txt": ["logs", "-n", SYSTEM, "-l", LABEL, "--all-containers", "--tail=-1"],
    }
    for name, command in commands.items():
        with contextlib.suppress(subprocess.SubprocessError):
            (folder / name).write_text(site.kubectl(*command))


def _simulated() -> list[str]:
    return [f"node/{name}" for name in SIMULATED.names()]


def holder_image(folder: Path) -> Path:
    """A program that does nothing, under the name that the manifests give to holder pods."""
    config = yaml.safe_load_all((ROOT / "manifests/base/gpu-shim/config.yaml").read_text())
    pinned = next(config)["data"]["BALLAST_AGENT_HOLDER_IMAGE"]
    return write_pause_image(folder, looked_up(pinned))


def _give_gpus(site: Site, node: str, n: int) -> None:
    """What NVIDIA's device plugin would say; there is nothing behind these GPUs."""
    listed: Mapping[str, str] = {"nvidia.com/gpu": str(n)}
    patch = json.dumps({"status": {"capacity": listed, "allocatable": listed}})
    site.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)


def driver_files(folder: Path) -> dict[str, Path]:
    """A driver of the tests' own and the list of its cards, for the node agent's folder."""
    fakecuda.build(folder)
    uuids = (fakecuda.UUID, fakecuda.SECOND)
    devices = [
        {"index": ix, "uuid": uuid, "memoryMiB": REAL_MIB, "model": "A100"}
        for ix, uuid in enumerate(uuids)
    ]
    inventory = folder / "inventory.yaml"
    inventory.write_text(yaml.safe_dump({"devices": devices}))
    card = fakecuda.Card(folder / "card", REAL_MIB).path
    libraries = {f"{AGENT_FOLDER}/driver/{each.name}": each for each in folder.glob("*.so.1")}
    return libraries | {
        f"{AGENT_FOLDER}/inventory.yaml": inventory,
        f"{CARD_FOLDER}/state": card,
        f"{CARD_FOLDER}/static": build_static(folder),
    }


def scheduler_image(plane: NodeControlPlane) -> Path:
    """Our own build of kube-scheduler under the name that the manifests give."""
    deployment = yaml.safe_load_all(
        (ROOT / "manifests" / "base" / "scheduler" / "deployment.yaml").read_text()
    )
    containers = next(deployment)["spec"]["template"]["spec"]["containers"]
    pinned = next(each["image"] for each in containers if each["name"] == "kube-scheduler")
    program = Path(plane.program("kube-scheduler"))
    return write_program_image(plane.work, looked_up(pinned), program, "kube-scheduler")


def looked_up(pinned: str) -> str:
    """What containerd keeps and looks up of a name with tag and digest: the name and the digest."""
    return re.sub(r":[^:@]+@", "@", pinned)
