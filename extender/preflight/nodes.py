"""Checks of the nodes: labels, device plugin, container runtime, room for Ballast's own pods."""

import re
from collections.abc import Iterator
from typing import Final

from extender.api.names import (
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    LABEL_GPU_MODEL,
    LABEL_MIG_STRATEGY,
    NVIDIA_GPU,
)
from extender.preflight.devices import has_published_cards
from extender.preflight.facts import PRESENT, Facts, Node
from extender.preflight.findings import PreflightFinding, State, some
from extender.state.fleet.inventory import is_replicated

CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
#: Cloud providers' labels of GPU nodes, with or without NVIDIA's.
CLOUD_LABELS: Final = ("cloud.google.com/gke-accelerator", "kubernetes.azure.com/accelerator")
#: GPU feature discovery's labels, and what a node without one of them lacks.
_EFFECTS: Final = {
    PRESENT: "no node agent runs",
    LABEL_GPU_COUNT: "only the device plugin tells the number of cards",
    LABEL_GPU_MEMORY: "the memory of cards is unknown",
    LABEL_GPU_MODEL: "the model of cards is unknown",
}
_RUNTIME: Final = re.compile(r"([a-z-]+)://v?([0-9]+)\.([0-9]+)")


def check_nodes(facts: Facts) -> Iterator[PreflightFinding]:
    """Every finding about nodes."""
    gpu_nodes = [each for each in facts.nodes if has_gpus(each)]
    if not gpu_nodes and (has_published_cards(facts) or facts.lacks("nodes")):
        return
    if not gpu_nodes:
        yield _no_gpu_nodes(facts)
        return
    yield PreflightFinding("GPU nodes", State.OK, f"{len(gpu_nodes)} of {len(facts.nodes)} nodes")
    yield _labels(gpu_nodes)
    yield _plugin(gpu_nodes)
    yield from _sharing(gpu_nodes)
    yield from _instances(gpu_nodes)
    yield _nri(gpu_nodes)
    yield _cdi(gpu_nodes)
    yield _own_place(facts.nodes)


def _no_gpu_nodes(facts: Facts) -> PreflightFinding:
    """An autoscaler removes idle nodes down to none."""
    elastic = [each.metadata.name for each in facts.node_pools if each.spec.elastic]
    if elastic:
        advice = f"run this again when {some(elastic)} has nodes: they are checked then"
        return PreflightFinding("GPU nodes", State.WARN, "none now", advice)
    advice = (
        "install NVIDIA's GPU Operator, or its device plugin and GPU feature discovery; if an"
        " autoscaler has removed all GPU nodes, add one"
    )
    return PreflightFinding("GPU nodes", State.FAIL, "no node has or claims GPUs", advice)


def has_gpus(node: Node) -> bool:
    """Whether the node has NVIDIA GPUs, or is labelled so."""
    return (
        node.labels.get(PRESENT) == "true"
        or LABEL_GPU_COUNT in node.labels
        or NVIDIA_GPU in node.status.capacity
        or any(label in node.labels for label in CLOUD_LABELS)
    )


def _labels(nodes: list[Node]) -> PreflightFinding:
    bare = [each.name for each in nodes if not _EFFECTS.keys() <= each.labels.keys()]
    if bare:
        absent = [label for label in _EFFECTS if any(label not in each.labels for each in nodes)]
        found = f"{some(bare)} lack {' or '.join(absent)}"
        effects = ", ".join(_EFFECTS[label] for label in absent)
        advice = (
            "install GPU feature discovery (part of the GPU Operator). On nodes without these"
            f" labels {effects}"
        )
        return PreflightFinding("GPU labels", State.FAIL, found, advice)
    return PreflightFinding("GPU labels", State.OK, "all GPU nodes")


def _plugin(nodes: list[Node]) -> PreflightFinding:
    bare = [each.name for each in nodes if NVIDIA_GPU not in each.status.capacity]
    if bare:
        found = f"{some(bare)} have no {NVIDIA_GPU}"
        advice = (
            "install the device plugin, or run the node agent with --cards=ours (docs/gpu-shim.md)"
        )
        return PreflightFinding("device plugin", State.WARN, found, advice)
    return PreflightFinding("device plugin", State.OK, "all GPU nodes")


def _sharing(nodes: list[Node]) -> Iterator[PreflightFinding]:
    replicated = [each.name for each in nodes if is_replicated(each.labels)]
    if replicated:
        found = f"time-slicing or MPS of the device plugin on {some(replicated)}"
        advice = (
            "remove `sharing` from the device plugin's configuration: one nvidia.com/gpu must be"
            " one card; Ballast shares cards itself and does not use these nodes"
        )
        yield PreflightFinding("device plugin's sharing", State.FAIL, found, advice)
    else:
        yield PreflightFinding("device plugin's sharing", State.OK, "off")


def _instances(nodes: list[Node]) -> Iterator[PreflightFinding]:
    """MIG instances under the resource name of whole GPUs; the product's name reveals them."""
    found = [
        each.name
        for each in nodes
        if each.labels.get(LABEL_MIG_STRATEGY) == "single"
        and "-MIG-" in each.labels.get(LABEL_GPU_MODEL, "")
    ]
    if found:
        text = f"{some(found)} have MIG instances as {NVIDIA_GPU} (strategy single)"
        advice = (
            "set the device plugin's MIG strategy to mixed: each instance counts as a whole GPU,"
            " and the node agent has no card there"
        )
        yield PreflightFinding("MIG", State.WARN, text, advice)


def _runtime(node: Node) -> tuple[str, tuple[int, int]]:
    match = _RUNTIME.match(node.status.node_info.container_runtime_version)
    return (match[1], (int(match[2]), int(match[3]))) if match else ("", (0, 0))


def _nri(nodes: list[Node]) -> PreflightFinding:
    none, off = list[str](), list[str]()
    for each in nodes:
        name, version = _runtime(each)
        named = f"{each.name} ({each.status.node_info.container_runtime_version or 'unknown'})"
        if (name == "containerd" and version >= (2, 0)) or (name == "cri-o" and version >= (1, 26)):
            continue
        (off if name == "containerd" and version >= (1, 7) else none).append(named)
    if none:
        advice = (
            "shares of a card need containerd 1.7 or CRI-O 1.26; use the overlay"
            " without-gpu-shim on older ones"
        )
        return PreflightFinding("NRI", State.FAIL, f"not available on {some(none)}", advice)
    if off:
        advice = (
            'set disable = false in [plugins."io.containerd.nri.v1.nri"] and restart containerd'
        )
        return PreflightFinding("NRI", State.WARN, f"off by default on {some(off)}", advice)
    return PreflightFinding(
        "NRI", State.OK, "on by default (the API does not show whether it was disabled)"
    )


def _cdi(nodes: list[Node]) -> PreflightFinding:
    needed = {"containerd": (2, 1), "cri-o": (1, 34)}
    old = []
    for each in nodes:
        name, version = _runtime(each)
        if name not in needed or version < needed[name]:
            old.append(f"{each.name} ({each.status.node_info.container_runtime_version})")
    if old:
        advice = "set BALLAST_AGENT_DELIVER=environment in the ConfigMap ballast-agent"
        return PreflightFinding("CDI by NRI", State.WARN, f"too old on {some(old)}", advice)
    return PreflightFinding("CDI by NRI", State.OK, "all GPU nodes")


def _own_place(nodes: list[Node]) -> PreflightFinding:
    """Where Ballast's Deployments may run: not on GPU nodes, but on control planes."""
    for each in nodes:
        taints = each.spec.taints or ()
        kept_off = any(t.effect != "PreferNoSchedule" and t.key != CONTROL_PLANE for t in taints)
        if not (each.spec.unschedulable or kept_off or each.labels.get(PRESENT) == "true"):
            return PreflightFinding("place for Ballast's own pods", State.OK, each.name)
    advice = (
        "add a node without GPUs, or the component manifests/components/on-gpu-nodes"
        " (docs/install.md)"
    )
    found = "no schedulable node without nvidia.com/gpu.present=true"
    return PreflightFinding("place for Ballast's own pods", State.FAIL, found, advice)
