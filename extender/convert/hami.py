"""HAMi: converts pods that request parts of a GPU by resources to pods that do so by annotations.

HAMi has no queues; projects have to be written by hand.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from extender.api.demand import COMPUTE_LIMIT, COMPUTE_REQUEST, DEVICES
from extender.api.names import ANNOTATION_FRACTION, ANNOTATION_MEMORY, NVIDIA_GPU
from extender.convert.fields import Converted, Fields, Lost, Manifest
from extender.convert.queues import amount_of
from extender.convert.shapes import shaped
from extender.convert.templates import adopted, containers_of, is_workload, note, template_of


@dataclass(slots=True, frozen=True)
class Words:
    """The resources with which a vGPU is requested."""

    number: str
    memory: str
    cores: str
    percentage: str = ""


_HAMI: Final = Words(
    "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage"
)
SCHEDULERS: Final = ("hami-scheduler", "vgpu-scheduler", "4pd-scheduler")
#: Annotations that control HAMi, and why Ballast has no counterpart.
_WHY: Final = {
    "hami.io/node-scheduler-policy": "placement of the GpuNodePool says so for all its pods",
    "hami.io/gpu-scheduler-policy": "placement of the GpuNodePool says so for all its pods",
    "nvidia.com/nouse-gputype": "use nvidia.com/use-gputype, or a node pool without that model",
    "nvidia.com/use-gpuuuid": "a pod does not choose cards: use a node pool",
    "nvidia.com/nouse-gpuuuid": "a pod does not choose cards: use a node pool",
    "nvidia.com/vgpu-mode": "Ballast's own library holds the cap",
    "hami.io/vgpu-mode": "Ballast's own library holds the cap",
}
_ENVS: Final = {
    "CUDA_OVERSUBSCRIBE": "memoryLending of the node pool lends memory that no pod requested",
    "GPU_CORE_UTILIZATION_POLICY": "timeSlicing of the GpuNodePool says how time is divided",
    "CUDA_TASK_PRIORITY": "use a priority class",
}


_SHAPES: Final = {"ConfigMap": {"data": dict}}


def convert(objects: Iterable[Manifest]) -> Converted:
    """Convert all objects."""
    done = Converted()
    for manifest in shaped(objects, _SHAPES):
        if is_workload(manifest):
            workload = adopted(manifest, SCHEDULERS)
            change(template_of(workload), _HAMI, Fields(manifest).named, done)
            done.objects.append(workload)
        elif manifest.get("kind") == "ConfigMap":
            _config(manifest, done)
        else:
            done.leave_out(manifest, "HAMi")
    return done


def change(template: Manifest, words: Words, named: str, done: Converted) -> None:
    """Convert the resources of the template's containers to annotations of its pods."""
    _look_at_notes(template, named, done)
    asked = [(each, _take(each, words, named)) for each in containers_of(template)]
    asked = [(each, given) for each, given in asked if given]
    if not asked:
        return
    if len(asked) > 1:
        why = "one container of a pod shares a card here: the first that asks is taken"
        done.lost.append(Lost(named, "GPUs of a further container", why))
    container, given = asked[0]
    number = given.get(words.number, 1)
    mib, percent = given.get(words.memory), given.get(words.percentage)
    cores = given.get(words.cores, 0)
    if not mib and (not percent or percent >= 100):
        limits = container.setdefault("resources", {}).setdefault("limits", {})
        limits[NVIDIA_GPU] = str(number)
        if 0 < cores < 100:
            why = "whole GPUs have all their time; ask for a part of a GPU to have a part of it"
            done.lost.append(Lost(named, f"{words.cores}={cores}", why))
        return
    if mib:
        note(template, ANNOTATION_MEMORY, str(mib))
    else:
        note(template, ANNOTATION_FRACTION, f"{(percent or 0) / 100:g}")
    if number > 1:
        note(template, DEVICES, str(number))
    if 0 < cores < 100:
        note(template, COMPUTE_REQUEST, f"{cores / 100:g}")
        note(template, COMPUTE_LIMIT, f"{cores / 100:g}")


def _take(container: Manifest, words: Words, named: str) -> dict[str, int]:
    """The container's requests in these resources, which are removed from it."""
    found: dict[str, int] = {}
    resources = container.get("resources") or {}
    for part in ("requests", "limits"):
        amounts = resources.get(part) or {}
        for word in (words.number, words.memory, words.cores, words.percentage):
            if word and word in amounts:
                found[word] = amount_of(named, f"resources.{part}.{word}", amounts.pop(word))
        if part in resources and not amounts:
            del resources[part]
    if "resources" in container and not resources:
        del container["resources"]
    return found


def _look_at_notes(template: Manifest, named: str, done: Converted) -> None:
    notes = (template.get("metadata") or {}).get("annotations") or {}
    for key, why in _WHY.items():
        if key in notes:
            done.lost.append(Lost(named, f"{key}={notes.pop(key)}", why))
    for container in containers_of(template):
        for env in container.get("env") or ():
            if why := _ENVS.get(env["name"], ""):
                done.lost.append(Lost(named, f"env {env['name']}={env.get('value')}", why))


def _config(manifest: Manifest, done: Converted) -> None:
    """The device plugin's configuration: its scaling has no counterpart."""
    named = Fields(manifest).named
    text = " ".join(map(str, (manifest.get("data") or {}).values()))
    for word, why in (
        ("deviceMemoryScaling", "the memory of a card is not overcommitted: see memoryLending"),
        ("devicememoryscaling", "the memory of a card is not overcommitted: see memoryLending"),
        ("deviceSplitCount", "a card is shared by as many pods as their requests allow"),
        ("devicesplitcount", "a card is shared by as many pods as their requests allow"),
        ("migstrategy", "MIG instances are requested by their resource names"),
    ):
        if word in text:
            done.lost.append(Lost(named, word, why))
