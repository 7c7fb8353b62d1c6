"""Steps: programs of the node are replaced and killed, and pods take what they were not given."""

import contextlib
import os
import signal
import sysconfig
import time
from pathlib import Path
from typing import Final

from tests.e2e import escapes
from tests.gpu_node.results import since
from tests.gpu_node.shares import SHARES, sharers
from tests.gpu_node.stage import COMPUTE_S, POINTS, Stage
from tests.gpu_node.tenants import PROJECT, PYTHON, READY_S, job, pod

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
EVICTED_S: Final = 10.0
#: For so long the DaemonSet may still count a killed agent as Ready.
COUNTED_S: Final = 2.0
#: Kubelet notices in this time that a program of the node has ended.
SEEN_S: Final = 5.0


def agent_replaced(stage: Stage) -> None:
    """Programs go on while the agent is away; its successor caps the next pod."""
    stage.tenants.start(pod("long", job("gemm", 4 * COMPUTE_S), "0.5"))
    stage.tenants.wait_for("long", 2)
    stage.replace_agent()
    rates = stage.tenants.wait_for_more("long", 3)
    stage.results.tell("a program goes on while the agent is replaced", rates, "", all(rates))
    stage.tell_half("second", "a pod that comes afterwards")


def killed(stage: Stage) -> None:
    """The agent is killed while two pods compute, and comes back."""
    tenants, tell = stage.tenants, stage.results.tell
    tenants.start(*sharers(4 * COMPUTE_S))
    for name in SHARES:
        tenants.wait_for(name, 4)
    (found,) = [each for each in Path("/proc").glob("[0-9]*") if _is_agent(each)]
    os.kill(int(found.name), signal.SIGKILL)
    killed_s = time.monotonic()
    time.sleep(COUNTED_S)
    stage.wait_for_agent()
    tell("from kill -9 of the agent to Ready, s", since(killed_s))
    for name in SHARES:
        tenants.wait_for_more(name, 12)
    tell("products in each second around it", {name: tenants.rates(name) for name in SHARES})
    part = tenants.parts(SHARES, last=8)["quarter"]
    tell("share of the quarter afterwards", part, 0.25, abs(part - 0.25) <= POINTS)


def restarts(stage: Stage) -> None:
    """Containerd and kubelet are killed while a pod computes; another pod comes afterwards."""
    stage.tenants.start(pod("long", job("gemm", 6 * COMPUTE_S), "0.5"))
    stage.tenants.wait_for("long", 2)
    for program in ("containerd", "kubelet"):
        stage.node.restart(program)
        time.sleep(SEEN_S)
    rates = stage.tenants.wait_for_more("long", 2)
    what = "a program goes on while containerd and kubelet are killed"
    stage.results.tell(what, rates, "", all(rates))
    stage.tell_half("second", "a pod that comes afterwards")
    stage.tell_conditions()


def stranger(stage: Stage) -> None:
    """A pod that has the card without Ballast's row is reported."""
    stolen = pod("stranger", job("gemm", COMPUTE_S))
    stolen["spec"]["runtimeClassName"] = "nvidia"
    wants = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
    container = stolen["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": value} for name, value in wants.items()]
    stage.tenants.start(pod("owner", job("gemm", COMPUTE_S), "0.5"), stolen)
    stage.tenants.wait_for("stranger", 4)
    time.sleep(SEEN_S)
    stage.tell_conditions("PodsWithinBounds")
    reasons = stage.site.reasons(PROJECT, "stranger")
    is_good = "GpuNotGiven" in reasons
    stage.results.tell("reasons in its events", sorted(reasons), "GpuNotGiven", is_good)


def evicted(stage: Stage) -> None:
    """Past the library and above its cap: such a pod is evicted if an administrator wants that."""
    site, tenants, tell = stage.site, stage.tenants, stage.results.tell
    stage.configure_agent(EVICT="true", EVICT_AFTER_S="0")
    tenants.start(
        pod("behaves", job("gemm", 4 * COMPUTE_S), "0.25"),
        pod("greedy", [PYTHON, "-c", escapes.LOADER, GREEDY], "0.25"),
    )
    tenants.wait_for("greedy", 1)
    used_s = time.monotonic()
    site.wait("the end of greedy", READY_S, lambda: "greedy" in site.pods(PROJECT), False)
    took_s = since(used_s)
    is_soon = took_s <= EVICTED_S
    tell("from its use of the card to its eviction, s", took_s, f"at most {EVICTED_S}", is_soon)
    found = site.reasons(PROJECT, "greedy")
    wanted = {"GpuUnprotected", "GpuMemoryOverCap"}
    tell("reasons in its events", sorted(found), sorted(wanted), wanted <= found)
    rates = tenants.wait_for_more("behaves", 2)
    tell("the other pod goes on", rates, "", all(rates))
    stage.configure_agent(EVICT="false", EVICT_AFTER_S="30")


def _is_agent(process: Path) -> bool:
    with contextlib.suppress(OSError):
        return b"\0-m\0gpu_shim\0" in (process / "cmdline").read_bytes()
    return False
