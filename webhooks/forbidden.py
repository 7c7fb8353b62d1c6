"""Warns the authors of a template about what the policy gpu-pods refuses in its pods.

The policy is evaluated by the API server when a pod is created, so only the controller that creates
the pod sees the refusal. It applies in the namespaces of projects.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from extender.api import names
from extender.api.demand import GPU_RESOURCES, mig_slices, shares_cards
from webhooks.case import PodCase
from webhooks.change import VISIBLE_DEVICES, preemptibility_of
from webhooks.parts import Document
from webhooks.spelling import BARE
from webhooks.vocabulary import is_foreign

_NVIDIA: Final = "nvidia.com/"
#: Resources of NVIDIA's network operator, by prefix: `notAccelerators` of the policy.
NETWORK_CARDS: Final = (
    "nvidia.com/hostdev",
    "nvidia.com/mlnx",
    "nvidia.com/rdma",
    "nvidia.com/sriov",
)

#: What lets a container reach its neighbours' memory: `tooMuch` of the policy.
POWERS: Final = (
    "ALL",
    "SYS_ADMIN",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_MODULE",
    "DAC_READ_SEARCH",
    "BPF",
    "PERFMON",
)
#: Seconds: the longest grace period of a preemptible pod.
MOST_GRACE_S: Final = 3600


def refusals(case: PodCase, spec: Document) -> Iterator[str]:
    """Warns about fields of the pods' `spec` that the policy allows no pod like that of `case`."""
    if not case.demand.is_gpu_work:
        return
    for fault in _faults(case, spec):
        yield f"its pods will be refused: {fault}"


def _faults(case: PodCase, spec: Document) -> Iterator[str]:
    yield from _exposed_cards(spec)
    if spec.get("nodeName"):
        yield (
            "spec.nodeName is preset: Ballast places pods that use GPUs; name the node by"
            " nodeSelector {kubernetes.io/hostname: its name} instead"
        )
    grace_s = spec.get("terminationGracePeriodSeconds") or 0
    if grace_s > MOST_GRACE_S and preemptibility_of(case) != names.NON_PREEMPTIBLE:
        yield (
            f"terminationGracePeriodSeconds: {grace_s} is more than {MOST_GRACE_S}, the most for"
            " preemptible pods with GPUs"
        )
    if case.demand.counted or shares_cards(case.pod.metadata.annotations or {}):
        yield from _ways_to_neighbours(spec)


def _exposed_cards(spec: Document) -> Iterator[str]:
    """A variable that exposes other pods' cards."""
    for container in _containers(spec):
        for each in container.get("env") or ():
            if each["name"] == VISIBLE_DEVICES and each.get("value") not in ("void", "none"):
                yield (
                    f"container {container['name']:.63} sets {VISIBLE_DEVICES}: leave it out (the"
                    " node gives a container its own cards), or set it to void"
                )


def _ways_to_neighbours(spec: Document) -> Iterator[str]:
    """Ways to the memory of the pods with which a pod shares its card."""
    whole = "or ask for whole GPUs (nvidia.com/gpu)"
    for field in ("hostPID", "hostIPC"):
        if spec.get(field):
            yield f"a pod that shares a GPU may not set {field}: leave it out, {whole}"
    for container in _containers(spec):
        for power in _powers(container.get("securityContext") or {}):
            yield (
                f"container {container['name']:.63} shares a GPU and may not have {power:.80},"
                f" which reaches its neighbours' memory: leave it out, {whole}"
            )
    for volume in spec.get("volumes") or ():
        if volume.get("hostPath"):
            yield (
                f"volume {volume['name']:.63} is a hostPath, which a pod that shares a GPU may not"
                f" mount: use a PersistentVolumeClaim, emptyDir or a CSI volume, {whole}"
            )


def _powers(context: Document) -> Iterator[str]:
    if context.get("privileged"):
        yield "privileged: true"
    # Runtimes read capabilities in any case, with the prefix or without.
    for added in (context.get("capabilities") or {}).get("add") or ():
        if added.upper().removeprefix("CAP_") in POWERS:
            yield f"the capability {added}"
    if (mount := context.get("procMount") or "Default") != "Default":
        yield f"procMount: {mount}"


def uncounted(specs: Iterable[Document]) -> Iterator[str]:
    """Warns about NVIDIA's resources that Ballast does not count, such as replicas of time-slicing.

    `specs` are of pods. The policy refuses those of other vendors too, by a list that
    administrators change.
    """
    for spec in specs:
        for container in _containers(spec):
            listed = container.get("resources") or {}
            asked = (listed.get("limits") or {}) | (listed.get("requests") or {})
            for name, amount in asked.items():
                if _is_uncounted(name) and str(amount) != "0":
                    yield (
                        f"its pods will be refused: {name:.80} is not a resource that Ballast"
                        " counts: ask for whole GPUs (nvidia.com/gpu), a share of one (annotation"
                        ' gpu-fraction: "0.5", or gpu-memory in MiB) or a MIG instance'
                        " (nvidia.com/mig-1g.10gb)"
                    )


def _is_uncounted(resource: str) -> bool:
    # `webhooks.spelling` names the annotation that was meant by one of `BARE`.
    return (
        resource.startswith(_NVIDIA)
        and resource.removeprefix(_NVIDIA) not in BARE
        and not resource.startswith(NETWORK_CARDS)
        and not (resource in GPU_RESOURCES or mig_slices(resource) or is_foreign(resource))
    )


def _containers(spec: Document) -> Iterator[Document]:
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()
