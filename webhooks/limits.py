"""Requests that the limits of the project or department can never satisfy, and warnings.

A pod above a limit would stay pending for ever, and users easily overlook a condition. So the pod
is refused when it is created. Limits that only several pods together exceed are not checked here:
the controller decides which of the pods run.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.api import names
from extender.api.aliases import first_of, written
from extender.api.demand import (
    COMPUTE_LIMIT,
    COMPUTE_REQUEST,
    FRACTION,
    MEMORY,
    MEMORY_LIMIT_KEYS,
    Demand,
    pod_name,
)
from extender.api.kinds import PoolFigures
from extender.api.reasons import Reason, Refused
from extender.api.units import (
    MILLI_PER_GPU,
    UnitError,
    count_gpus,
    format_gpus,
    parse_cpu,
    parse_gpus,
    parse_memory,
)
from webhooks.case import PodCase
from webhooks.kinds.finding import meant
from webhooks.validate import USUAL_SCHEDULERS

#: A CUDA context alone takes this much; a smaller request was probably meant in GiB.
SMALL_MIB: Final = 128


def check_limits(case: PodCase) -> Refused | None:
    """Why no node pool that the pod may use allows its requests, or None."""
    pools = case.pool_names
    forbidding: dict[str, str] = {}
    for queue, pool, figures in case.figures():
        try:
            for asked, most, accepted in _overruns(case.demand, figures):
                forbidding.setdefault(
                    pool,
                    f"asks for {asked}, but {queue} may have at most {most} in node pool {pool};"
                    f" {accepted}",
                )
        except UnitError:
            # Invalid figures limit nothing; a condition of the GpuProject reports them.
            continue
    if not set(pools) <= forbidding.keys():
        return None
    return Refused(Reason.OVER_LIMIT, f"{pod_name(case.pod)}: {forbidding[pools[0]]}")


def _overruns(demand: Demand, figures: PoolFigures) -> Iterator[tuple[str, str, str]]:
    """What the pod requests, the limit that is below it, and what is accepted; raises UnitError."""
    gpus, cpu, memory = figures.gpu.limit, figures.cpu.limit, figures.memory.limit
    milli = demand.total_milli + demand.counted_milli
    if gpus is not None and milli > (most := parse_gpus(gpus)):
        yield count_gpus(milli), str(gpus), _accepted(most)
    if cpu is not None and demand.cpu_milli > parse_cpu(cpu):
        yield f"cpu: {demand.cpu_milli}m", str(cpu), f"ask for at most that, such as cpu: {cpu}"
    if memory is not None and demand.memory_mib > parse_memory(memory):
        shown = f"{memory} bytes" if str(memory).isdigit() else str(memory)
        accepted = f"ask for at most that, such as memory: {memory}"
        yield f"memory: {demand.memory_mib}Mi", shown, accepted


def _accepted(most_milli: int) -> str:
    """What a pod may request where at most so much is allowed, as it is written in a pod."""
    if not most_milli:
        return f"use another node pool (annotation {names.ANNOTATION_NODE_POOLS})"
    whole = most_milli // MILLI_PER_GPU
    example = (
        f"{names.NVIDIA_GPU}: {whole}" if whole else f'{FRACTION}: "{format_gpus(most_milli)}"'
    )
    return f"ask for at most that, such as {example}"


def check_node_labels(case: PodCase) -> Refused | None:
    """Why the pod's nodeSelector conflicts with its project's node affinity, or None."""
    selector = case.pod.spec.node_selector or {}
    for key, value in case.node_labels.items():
        if selector.get(key, value) != value:
            return Refused(
                Reason.INVALID_REQUEST,
                f"{pod_name(case.pod)}: nodeSelector {key}: {selector[key]!r:.80} is not for"
                f" {case.kind} work of project {case.project.metadata.name}; leave it out, or give"
                f" the one that is, such as {key}: {value}",
            )
    return None


def warnings(case: PodCase) -> Iterator[str]:
    """Warnings about legal fields that may not have the effect that their author expects."""
    notes = case.pod.metadata.annotations or {}
    yield from _without_effect(case, notes)
    unknown = [p for p in case.pool_names if p != names.DEFAULT_POOL and p not in case.pools]
    if unknown and case.pod.metadata.annotation(names.ANNOTATION_NODE_POOLS):
        near = meant(unknown[0], (names.DEFAULT_POOL, *case.pools))
        yield f"node pool {unknown[0]:.80} does not exist (yet): the pod waits until it does{near}"
    yield from _larger_than_all(case)
    mib = case.demand.gpu_memory_mib
    if 0 < mib < SMALL_MIB and not case.translation:
        key = written(notes, (MEMORY, names.ANNOTATION_MEMORY))
        yield f'{key}: {mib} means {mib} MiB: for {mib} GiB write "{mib * 1024}"'
    named = case.pod.spec.scheduler_name
    if not case.demand.is_gpu_work and named not in (*USUAL_SCHEDULERS, names.SCHEDULER_NAME):
        yield f"the pod requests no GPU: Ballast leaves it to the scheduler {named:.80}"
    if case.translation:
        said = ", ".join(f"{key}: {value}" for key, value in sorted(case.translation.notes.items()))
        whole = f"{names.NVIDIA_GPU}: {case.translation.whole}" if case.translation.whole else ""
        yield f"Ballast reads this pod's GPU request as {said or whole}"


def _larger_than_all(case: PodCase) -> Iterator[str]:
    """Warns about a request that no node holds, by the statuses of the pod's node pools."""
    demand = case.demand
    most_gpus, most_mib = 0, 0
    for name in case.pool_names:
        pool = case.pools.get(name)
        if pool is None or not pool.status.largest_node_gpus:
            # The sizes of its nodes are not known.
            return
        grows = pool.spec.elastic
        most_gpus = max(most_gpus, pool.status.largest_node_gpus, grows.node.gpus if grows else 0)
        most_mib = max(
            most_mib, pool.status.largest_card_mib, grows.node.gpu_memory_mib if grows else 0
        )
    pools = f"node pool {', '.join(case.pool_names):.80}"
    if demand.devices > most_gpus:
        yield (
            f"the pod will not start on the nodes that there are: it asks for {demand.devices} GPUs"
            f" of one node, and no node of {pools} has more than {most_gpus}"
        )
    elif demand.gpu_memory_mib > most_mib:
        yield (
            f"the pod will not start on the nodes that there are: it asks for"
            f" {demand.gpu_memory_mib} MiB of a card, and no card of {pools} has more than"
            f" {most_mib} MiB"
        )


def _without_effect(case: PodCase, notes: Mapping[str, str]) -> Iterator[str]:
    """Warnings about annotations that change nothing in the pod's node pools."""
    if "gpu-fraction-limit" in notes:
        yield "gpu-fraction-limit has no effect: give gpu-memory and gpu-memory-limit, in MiB"
    if first_of(notes, MEMORY_LIMIT_KEYS):
        key = written(notes, MEMORY_LIMIT_KEYS)
        if not case.demand.gpu_memory_mib:
            yield f"{key} has no effect without gpu-memory, the request in MiB"
        elif pools := [pool for pool in case.pool_names if not case.lends_memory(pool)]:
            yield (
                f"{key} has no effect in node pool {pools[0]:.80}, which lends no memory:"
                " an administrator can set its spec.memoryLending to Enabled"
            )
    of_time = [key for key in (COMPUTE_REQUEST, COMPUTE_LIMIT) if key in notes]
    pools = [pool for pool in case.pool_names if not case.divides_time(pool)]
    if of_time and pools:
        yield (
            f"{of_time[0]} has no effect in node pool {pools[0]:.80}, which does not divide the"
            " time of cards: an administrator can set its spec.timeSlicing.mode to Fair or Strict"
        )
    if "mps" in notes:
        yield f"mps has no effect: compute time is shared by {COMPUTE_LIMIT} and the pool's mode"
