"""Steps: what pods that share a card get of its memory and its time."""

import os
import subprocess
import time
from typing import Final

from tests.e2e.site import NODE_SYSTEM
from tests.e2e.workloads import Manifest
from tests.gpu_node.results import since
from tests.gpu_node.stage import COMPUTE_S, POINTS, Stage, pool
from tests.gpu_node.tenants import PROJECT, PYTHON, job, pod
from tests.support.node.binaries import find_node_binaries

SHARES: Final = {"quarter": "0.25", "rest": "0.75"}
SMI: Final = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
LIMIT_MIB: Final = 24576
#: Time in which a pod that need not wait would have started.
WAITS_S: Final = 5.0


def sharers(seconds: int) -> list[Manifest]:
    """Two pods that compute, with a quarter and three quarters."""
    return [pod(name, job("gemm", seconds), share) for name, share in SHARES.items()]


def memory(stage: Stage) -> None:
    """A half of the card is all that PyTorch sees, and all that it gets; then it goes on."""
    stage.tell_half("half", "PyTorch with gpu-fraction 0.5")
    ended = stage.tenants.end_of("half")
    stage.results.tell("how it ended", ended, "Succeeded", ended == "Succeeded")
    stage.tell_conditions()


def smi(stage: Stage) -> None:
    """nvidia-smi, started like any other program."""
    stage.tenants.start(pod("smi", SMI, "0.25"))
    (seen,) = stage.tenants.wait_for("smi", 1)
    cap_mib = stage.card_mib() // 4
    is_good = abs(seen - cap_mib) <= 1
    stage.results.tell("nvidia-smi with gpu-fraction 0.25, MiB", seen, cap_mib, is_good)


def two(stage: Stage) -> None:
    """Two pods of PyTorch share the card's time as they share the card."""
    _share_time(stage, "two pods of PyTorch, Strict")


def busy(stage: Stage) -> None:
    """The same while four programs for each processor of the machine compute without a pause."""
    n = 4 * (os.cpu_count() or 1)
    load = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(n)]
    try:
        _share_time(stage, f"the same beside {n} busy programs")
    finally:
        for each in load:
            each.kill()
            each.wait()


def burst(stage: Stage) -> None:
    """Eight pods of an eighth each, all at once: each computes, and none runs out of memory."""
    tenants, names, started_s = stage.tenants, [f"eighth-{ix}" for ix in range(8)], time.monotonic()
    tenants.start(*(pod(name, job("gemm", COMPUTE_S), "0.125") for name in names))
    for name in names:
        tenants.wait_for(name, 1)
    stage.results.tell("eight pods compute after, s", since(started_s))
    for name in names:
        tenants.end_of(name)
    parts = tenants.parts(names)
    is_good = all(abs(part - 0.125) <= POINTS for part in parts.values())
    stage.results.tell("shares of eight pods", parts, 0.125, is_good)


def whole(stage: Stage) -> None:
    """A pod with the whole card waits for the pod that shares it, and then has all of it."""
    site, tenants, tell = stage.site, stage.tenants, stage.results.tell
    tenants.start(pod("sharer", job("gemm", COMPUTE_S), "0.5"))
    tenants.wait_for("sharer", 1)
    given = site.get("pods", "-n", NODE_SYSTEM, "-l", "app.kubernetes.io/component=gpu-holder")
    tell("holder pods while a pod shares the card", len(given), 1, len(given) == 1)
    tenants.start(pod("whole", job("alloc-native", 2), **{"nvidia.com/gpu": "1"}))
    time.sleep(WAITS_S)
    waiting = site.pods(PROJECT, "Pending")
    tell("pods that wait while the card is shared", waiting, ["whole"], waiting == ["whole"])
    site.kubectl("delete", "pod", "sharer", "-n", PROJECT, "--timeout=60s")
    deleted_s = time.monotonic()
    (seen,) = tenants.wait_for("whole", 1)
    tell("from its end to the result of the whole card's pod, s", since(deleted_s))
    total_mib = stage.card_mib()
    is_good = seen["took_mib"] > total_mib * 0.9
    tell("PyTorch with nvidia.com/gpu: 1", seen, f"about {total_mib} MiB", is_good)


def lending(stage: Stage) -> None:
    """Eight GiB requested, 24 GiB allowed, and the rest of the card is free."""
    stage.site.apply(pool(memoryLending="Enabled"))
    made = pod("borrower", job("alloc-native", 4))
    made["metadata"]["annotations"] = {"gpu-memory": "8192", "gpu-memory-limit": str(LIMIT_MIB)}
    stage.tenants.start(made)
    (seen,) = stage.tenants.wait_for("borrower", 1)
    is_good = 0.9 * LIMIT_MIB <= seen["took_mib"] <= LIMIT_MIB
    stage.results.tell("8 GiB of 24 GiB", seen, f"up to {LIMIT_MIB} MiB", is_good)
    stage.site.apply(pool())


def specification(stage: Stage) -> None:
    """A specification of nvidia-ctk beside that of the device plugin."""
    hook = find_node_binaries() / "nvidia-cdi-hook"
    generate = ["nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"]
    generate += ["--device-name-strategy=uuid", f"--nvidia-cdi-hook-path={hook}"]
    stage.node.run(*generate)
    stage.tell_half("half", "a card by two specifications")


def _share_time(stage: Stage, what: str) -> None:
    tenants, started_s = stage.tenants, time.monotonic()
    tenants.start(*sharers(COMPUTE_S))
    for name in SHARES:
        tenants.wait_for(name, 1)
    stage.results.tell("both compute after, s", since(started_s))
    for name in SHARES:
        tenants.end_of(name)
    stage.results.tell("products a second", {name: tenants.rates(name) for name in SHARES})
    part = tenants.parts(SHARES)["quarter"]
    stage.results.tell(what, part, 0.25, abs(part - 0.25) <= POINTS)
