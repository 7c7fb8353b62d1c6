"""`python -m tests.gpu_node.story ARCHIVE`: users' pods on a node with a real GPU, step by step.

ARCHIVE is Ballast's image. Each result is a line with what was expected; a step that failed does
not keep the next one from running.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.e2e import escapes, workloads
from tests.e2e.site import DEFINITIONS, NODE_SYSTEM, SYSTEM, Site
from tests.e2e.workloads import Manifest
from tests.gpu_node import image
from tests.gpu_node.site import NODE, gpu_site, query
from tests.support.node.binaries import find_node_binaries

OVERLAY: Final = Path(__file__).with_name("overlay")
OUT: Final = Path(os.environ.get("OUT", "."))
PROJECT: Final = "research"
#: The claim by which pods have PyTorch.
VOLUME: Final = "pytorch"
OURS: Final = "app.kubernetes.io/name=ballast"
READY: Final = "--timeout=120s"
READY_S: Final = 120.0
GPU: Final = "nvidia.com/gpu"
#: A pod's share by the account may be off by so much.
POINTS: Final = 0.03
COMPUTE_S: Final = 15
SHARES: Final = {"quarter": "0.25", "rest": "0.75"}
#: Takes half of the card, and keeps it.
GREEDY: Final = f"""
import sys, time
sys.path.append({sysconfig.get_path("purelib")!r})
import torch
free, total = torch.cuda.mem_get_info()
kept = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
print(total // 2 >> 20, flush=True)
time.sleep(600)
"""
PYTHON: Final = sys.executable
SMI: Final = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
MIB: Final = 1 << 20
#: Every node, with time slices.
POOL: Final[Manifest] = {
    "apiVersion": workloads.API,
    "kind": "GpuNodePool",
    "metadata": {"name": "default"},
    "spec": {"timeSlicing": {"mode": "Strict"}},
}
_started_s: Final = time.monotonic()


def tell(what: str, seen: object, expected: object = "", is_good: bool | None = None) -> None:
    """Write one result."""
    line = {"at_s": round(time.monotonic() - _started_s, 1), "what": what, "seen": seen}
    line |= {"expected": expected} if expected != "" else {}
    line |= {"is_good": is_good} if is_good is not None else {}
    print(json.dumps(line), flush=True)
    with (OUT / "results.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def pod(name: str, command: Sequence[str], share: str = "", **resources: str) -> Manifest:
    """A pod as a researcher writes it: a share of a card, or resources, and its program."""
    container: dict[str, Any] = {"name": "main", "image": image.NAME, "command": list(command)}
    where = str(image.ENVIRONMENT)
    container["volumeMounts"] = [{"name": VOLUME, "mountPath": where, "readOnly": True}]
    if resources:
        container["resources"] = {"limits": dict(resources)}
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": {"claimName": VOLUME}}],
    }
    metadata: dict[str, Any] = {"annotations": {"gpu-fraction": share} if share else {}}
    return workloads.pod(name, PROJECT, {"metadata": metadata, "spec": spec})


def job(name: str, seconds: int) -> list[str]:
    """A program of the kit's jobs."""
    return [PYTHON, "/jobs.py", name, str(seconds)]


# -- steps ----------------------------------------------------------------------------------------


def install(site: Site) -> None:
    """README's installation, and what an administrator does for the node."""
    started_s = time.monotonic()
    for folder in (DEFINITIONS, OVERLAY):
        site.kubectl("apply", "--server-side", "-k", str(folder))
    site.kubectl("wait", "-n", SYSTEM, "deployment", "--all", "--for=condition=Available", READY)
    tell("kubectl apply to all of ballast-system available, s", _since(started_s))
    site.wait("the device plugin's GPU", READY_S, site.n_gpus, 1)
    tell("GPUs that NVIDIA's device plugin counts", site.n_gpus(), 1, True)
    site.apply(
        workloads.namespace(PROJECT),
        workloads.department(PROJECT, 1),
        workloads.project(PROJECT, PROJECT, 1),
        POOL,
    )
    site.offer_folder(VOLUME, PROJECT, str(image.ENVIRONMENT))
    site.wait("the node agent", READY_S, lambda: _n_ready(site), 1)
    tell("the node agent is Ready after, s", _since(started_s))
    (node,) = site.get("gpunodes")
    devices = node.get("status", {}).get("devices", [])
    uuid = query("uuid")
    tell("the card in the GpuNode", devices, uuid, [each["uuid"] for each in devices] == [uuid])
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", [])}
    tell("conditions of the GpuNode", conditions)


def _card_mib(site: Site) -> int:
    """The card's memory as the agent reports it: what CUDA has, less than what nvidia-smi shows."""
    (node,) = site.get("gpunodes")
    return int(node["status"]["devices"][0]["memoryMiB"])


def memory(site: Site) -> None:
    """A half of the card is all that PyTorch sees, and all that it gets."""
    site.apply(pod("half", job("alloc-native", 4), "0.5"))
    (line,) = _lines(site, "half", 1)
    cap_mib = _card_mib(site) // 2
    seen = json.loads(line)
    is_good = abs(seen["free_total_mib"][1] - cap_mib) <= 1 and seen["took_mib"] > cap_mib * 0.9
    tell("PyTorch with gpu-fraction 0.5", seen, f"{cap_mib} MiB in all", is_good)
    ended = _end(site, "half")
    tell("how it ended", ended, "Succeeded", ended == "Succeeded")
    _tell_node(site)
    _clear(site)


def smi(site: Site) -> None:
    """nvidia-smi, started like any other program."""
    site.apply(pod("smi", SMI, "0.25"))
    (line,) = _lines(site, "smi", 1)
    cap_mib = _card_mib(site) // 4
    tell("nvidia-smi with gpu-fraction 0.25, MiB", line, cap_mib, abs(int(line) - cap_mib) <= 1)
    _clear(site)


def time_of_two(site: Site) -> None:
    """Two pods of PyTorch share the card's time as they share the card."""
    _share_time(site, "two pods of PyTorch, Strict")


def busy(site: Site) -> None:
    """The same while four programs for each processor of the machine compute without a pause."""
    n = 4 * (os.cpu_count() or 1)
    load = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(n)]
    try:
        _share_time(site, f"the same beside {n} busy programs")
    finally:
        for each in load:
            each.kill()
            each.wait()


def _share_time(site: Site, what: str) -> None:
    started_s = time.monotonic()
    site.apply(*_sharers(COMPUTE_S))
    for name in SHARES:
        _lines(site, name, 1)
    tell("both compute after, s", _since(started_s))
    for name in SHARES:
        _end(site, name)
    tell("products a second", {name: _rates(site, name) for name in SHARES})
    part = _parts(site, SHARES)["quarter"]
    tell(what, part, 0.25, abs(part - 0.25) <= POINTS)
    _clear(site)


def burst(site: Site) -> None:
    """Eight pods of an eighth each, all at once: each computes, none runs out of memory."""
    names = [f"eighth-{ix}" for ix in range(8)]
    started_s = time.monotonic()
    site.apply(*(pod(name, job("gemm", COMPUTE_S), "0.125") for name in names))
    for name in names:
        _lines(site, name, 1)
    tell("eight pods compute after, s", _since(started_s))
    for name in names:
        _end(site, name)
    parts = _parts(site, names)
    is_good = all(abs(part - 0.125) <= POINTS for part in parts.values())
    tell("shares of eight pods", parts, 0.125, is_good)
    _clear(site)


def killed(site: Site) -> None:
    """The agent is killed while two pods compute, and comes back."""
    site.apply(*_sharers(3 * COMPUTE_S))
    for name in SHARES:
        _lines(site, name, 4)
    (found,) = [each for each in Path("/proc").glob("[0-9]*") if _is_agent(each)]
    os.kill(int(found.name), signal.SIGKILL)
    at_s = time.monotonic()
    time.sleep(2)
    site.wait("the node agent", READY_S, lambda: _n_ready(site), 1)
    tell("from kill -9 of the agent to Ready, s", _since(at_s))
    n = len(_words(site, "quarter"))
    for name in SHARES:
        _lines(site, name, n + 12)
    rates = {name: _rates(site, name) for name in SHARES}
    tell("products in each second around it", {name: each[2:14] for name, each in rates.items()})
    part = _parts(site, SHARES, last=8)["quarter"]
    tell("share of the quarter afterwards", part, 0.25, abs(part - 0.25) <= POINTS)
    _clear(site)


def restarts(site: Site) -> None:
    """Containerd and kubelet are killed while a pod computes; another pod comes afterwards."""
    assert site.node is not None
    site.apply(pod("long", job("gemm", 4 * COMPUTE_S), "0.5"))
    _lines(site, "long", 2)
    for program in ("containerd", "kubelet"):
        site.node.restart(program)
        time.sleep(5)
    n = len(_words(site, "long"))
    _lines(site, "long", n + 2)
    tell("a program goes on while containerd and kubelet are killed", _rates(site, "long")[-2:])
    started_s = time.monotonic()
    site.apply(pod("second", job("alloc-native", 2), "0.5"))
    seen = json.loads(_lines(site, "second", 1)[0])
    cap_mib = _card_mib(site) // 2
    tell("a pod that comes afterwards", seen, cap_mib, seen["took_mib"] <= cap_mib)
    tell("its first line after, s", _since(started_s))
    _tell_node(site)
    _clear(site)


def specification(site: Site) -> None:
    """With a specification of nvidia-ctk beside that of the device plugin, by either."""
    assert site.node is not None
    hook = find_node_binaries() / "nvidia-cdi-hook"
    generate = ["nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"]
    generate += ["--device-name-strategy=uuid", f"--nvidia-cdi-hook-path={hook}"]
    site.node.run(*generate)
    time.sleep(3)
    site.apply(pod("half", job("alloc-native", 2), "0.5"))
    seen = json.loads(_lines(site, "half", 1)[0])
    cap_mib = _card_mib(site) // 2
    tell("a card by the specification of nvidia-ctk", seen, cap_mib, seen["took_mib"] <= cap_mib)
    _clear(site)


def lending(site: Site) -> None:
    """Eight GiB requested, 24 GiB allowed, and the rest of the card is free."""
    lends = POOL | {"spec": POOL["spec"] | {"memoryLending": "Enabled"}}
    site.apply(lends)
    made = pod("borrower", job("alloc-native", 4))
    made["metadata"]["annotations"] = {"gpu-memory": "8192", "gpu-memory-limit": "24576"}
    site.apply(made)
    seen = json.loads(_lines(site, "borrower", 1)[0])
    is_good = 23000 <= seen["took_mib"] <= 24576
    tell("8 GiB of 24 GiB", seen, "up to 24576 MiB", is_good)
    _clear(site)
    site.apply(POOL)


def evicted(site: Site) -> None:
    """Past the library, and above its cap: such a pod is evicted where an administrator says so."""
    options = {"BALLAST_AGENT_EVICT": "true", "BALLAST_AGENT_EVICT_AFTER_S": "0"}
    patch = ("--type=merge", "-p", json.dumps({"data": options}))
    site.kubectl("patch", "configmap", "ballast-agent", "-n", NODE_SYSTEM, *patch)
    _replace_agent(site)
    site.apply(pod("behaves", job("gemm", 3 * COMPUTE_S), "0.25"))
    site.apply(pod("greedy", [PYTHON, "-c", escapes.LOADER, GREEDY], "0.25"))
    _lines(site, "greedy", 1)
    at_s = time.monotonic()
    site.wait("the end of greedy", READY_S, lambda: "greedy" in site.pods(PROJECT), False)
    tell(
        "from its use of the card to its eviction, s",
        _since(at_s),
        "at most 10",
        _since(at_s) <= 10,
    )
    tell("reasons in its events", sorted(site.reasons(PROJECT, "greedy")))
    n = len(_words(site, "behaves"))
    _lines(site, "behaves", n + 2)
    tell("the other pod goes on", _rates(site, "behaves")[-2:])
    _clear(site)


def whole(site: Site) -> None:
    """A pod with the whole card waits for the pod that shares it, and then has all of it."""
    site.apply(pod("sharer", job("gemm", COMPUTE_S), "0.5"))
    _lines(site, "sharer", 1)
    given = site.get("pods", "-n", NODE_SYSTEM, "-l", "app.kubernetes.io/component=gpu-holder")
    tell("holder pods while a pod shares the card", len(given), 1, len(given) == 1)
    site.apply(pod("whole", job("alloc-native", 2), **{GPU: "1"}))
    time.sleep(5)
    phase = site.pods(PROJECT, "Pending")
    tell("pods that wait while the card is shared", phase, ["whole"], phase == ["whole"])
    site.kubectl("delete", "pod", "sharer", "-n", PROJECT, "--timeout=60s")
    deleted_s = time.monotonic()
    (line,) = _lines(site, "whole", 1)
    seen = json.loads(line)
    tell("from its end to the first line of the whole card's pod, s", _since(deleted_s))
    total_mib = _card_mib(site)
    is_good = seen["took_mib"] > total_mib * 0.9
    tell("PyTorch with nvidia.com/gpu: 1", seen, f"about {total_mib} MiB", is_good)
    tell("how it ended", _end(site, "whole"), "Succeeded")
    _clear(site)


def agent_replaced(site: Site) -> None:
    """Memory stays capped, and programs go on, while the agent is away."""
    site.apply(pod("long", job("gemm", 2 * COMPUTE_S), "0.5"))
    _lines(site, "long", 2)
    _replace_agent(site)
    n_seen = len(_words(site, "long"))
    _lines(site, "long", n_seen + 3)
    tell("a program goes on while the agent is replaced", _rates(site, "long")[-3:])
    site.apply(pod("second", job("alloc-native", 2), "0.5"))
    seen = json.loads(_lines(site, "second", 1)[0])
    cap_mib = _card_mib(site) // 2
    tell("a pod that comes afterwards", seen, cap_mib, seen["took_mib"] <= cap_mib)
    _clear(site)


def escape(site: Site) -> None:
    """A pod that has the card without Ballast's row is reported by the agent."""
    stolen = pod("stranger", job("gemm", COMPUTE_S), runtimeless="")
    stolen["spec"]["runtimeClassName"] = "nvidia"
    container = stolen["spec"]["containers"][0]
    container.pop("resources")
    container["env"] = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"},
    ]
    site.apply(pod("owner", job("gemm", COMPUTE_S), "0.5"), stolen)
    _lines(site, "stranger", 4)
    time.sleep(5)
    _tell_node(site)
    tell("reasons in the stranger's events", sorted(site.reasons(PROJECT, "stranger")))
    _clear(site)


STEPS: Final[dict[str, Callable[[Site], None]]] = {
    step.__name__: step
    for step in (
        *(memory, smi, time_of_two, busy, burst, whole, agent_replaced, killed, restarts),
        *(specification, lending, escape, evicted),
    )
}


# -- what they see --------------------------------------------------------------------------------


def _since(started_s: float) -> float:
    return round(time.monotonic() - started_s, 1)


def _sharers(seconds: int) -> list[Manifest]:
    return [pod(name, job("gemm", seconds), share) for name, share in SHARES.items()]


def _parts(site: Site, names: Iterable[str], last: int = 0) -> dict[str, float]:
    """Each pod's part of what all of them compute in a second, by the medians of their seconds.

    In its first and last seconds a pod may be alone, which a median leaves out.
    """
    rates = {name: sorted(_rates(site, name)[-last:]) for name in names}
    middle = {name: each[len(each) // 2] for name, each in rates.items()}
    return {name: round(each / sum(middle.values()), 3) for name, each in middle.items()}


def _replace_agent(site: Site) -> None:
    component = "app.kubernetes.io/component=gpu-shim"
    site.kubectl("delete", "pods", "-n", NODE_SYSTEM, "-l", component, "--timeout=60s")
    site.wait("the node agent", READY_S, lambda: _n_ready(site), 1)


def _is_agent(process: Path) -> bool:
    with contextlib.suppress(OSError):
        return b"\0-m\0gpu_shim\0" in (process / "cmdline").read_bytes()
    return False


def _n_ready(site: Site) -> int:
    (found,) = site.get("daemonsets", "-n", NODE_SYSTEM)
    return int(found["status"].get("numberReady", 0))


def _words(site: Site, name: str) -> list[str]:
    """The results that a pod has printed: a number, or an object of JSON; not its warnings."""
    printed = site.kubectl("logs", "-n", PROJECT, name).splitlines()
    return [each for each in printed if each[:1].isdigit() or each[:1] == "{"]


def _lines(site: Site, name: str, n: int) -> list[str]:
    """The first `n` results that a pod prints."""

    def has_spoken() -> bool:
        (found,) = site.get("pods", "-n", PROJECT, f"--field-selector=metadata.name={name}")
        phase = found["status"]["phase"]
        if phase == "Failed":
            said = site.kubectl("logs", "-n", PROJECT, name)
            raise AssertionError(f"{name} failed: {said[-1000:]}")
        return phase != "Pending" and len(_words(site, name)) >= n

    site.wait(f"{n} lines of {name}", READY_S, has_spoken, True)
    return _words(site, name)[:n]


def _rates(site: Site, name: str) -> list[float]:
    found = [json.loads(each) for each in _words(site, name)]
    return [each["steps_per_s"] for each in found if "steps_per_s" in each]


def _end(site: Site, name: str) -> str:
    def phase() -> str:
        (found,) = site.get("pods", "-n", PROJECT, f"--field-selector=metadata.name={name}")
        return str(found["status"]["phase"])

    site.wait(f"the end of {name}", READY_S, lambda: phase() in {"Succeeded", "Failed"}, True)
    return phase()


def _tell_node(site: Site) -> None:
    (node,) = site.get("gpunodes")
    found = {each["type"]: each.get("message", "") for each in node["status"]["conditions"]}
    tell("what the agent says of the node", found)


def _clear(site: Site) -> None:
    site.kubectl("delete", "pods", "-n", PROJECT, "--all", "--timeout=60s")


def _try(site: Site, name: str) -> bool:
    tell("step", name)
    try:
        STEPS[name](site)
    except Exception:
        tell(f"{name} broke off", traceback.format_exc(limit=2)[-1500:], is_good=False)
        _keep_words(site, name)
        _clear(site)
        return False
    return True


def _keep_words(site: Site, name: str) -> None:
    """Write down what a failure is understood by, as far as the cluster still answers."""
    commands = [["get", "gpunodes,gpunodepools", "-o", "yaml"]]
    for namespace in (PROJECT, NODE_SYSTEM, SYSTEM):
        commands.append(["describe", "pods", "-n", namespace])
        commands.append(["logs", "-n", namespace, "-l", OURS, "--tail=300", "--prefix"])
    with (OUT / f"{name}.txt").open("w") as file:
        for command in commands:
            with contextlib.suppress(subprocess.SubprocessError):
                file.write(f"# kubectl {' '.join(command)}\n{site.kubectl(*command)}")


def main(arguments: Sequence[str]) -> int:
    """Install, and take the steps that are named, or all."""
    wanted = arguments[1:] or list(STEPS)
    with gpu_site(Path(arguments[0]), OUT / "logs") as site:
        tell("the node is Ready", NODE)
        try:
            install(site)
            outcomes = [_try(site, name) for name in wanted]
        finally:
            _keep_words(site, "end")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
