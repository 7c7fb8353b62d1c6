"""Requests that the limits of the project or department can never satisfy, and warnings.

A pod above a limit would stay pending for ever, and users easily overlook a condition. So the pod
is refused when it is created. Limits that only several pods together exceed are not checked here:
the controller decides which of the pods run.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.api import names
from extender.api.demand import (
    COMPUTE_LIMIT,
    COMPUTE_REQUEST,
    MEMORY_LIMIT,
    MEMORY_LIMIT_KEYS,
    first_of,
    pod_name,
)
from extender.api.reasons import Reason, Refused
from extender.api.units import (
    UnitError,
    format_gpus,
    parse_cpu,
    parse_gpus,
    parse_memory,
)
from webhooks.case import PodCase
from webhooks.validate import USUAL_SCHEDULERS

#: A CUDA context alone takes this much; a smaller request was probably meant in GiB.
SMALL_MIB: Final = 128


def check_limits(case: PodCase) -> Refused | None:
    """Why no node pool that the pod may use allows its requests, or None."""
    pools = case.pool_names
    forbidding: dict[str, str] = {}
    for queue, pool, figures in case.figures():
        demand = case.demand
        milli = demand.total_milli + demand.counted_milli
        try:
            asked = (
                ("gpu", milli, figures.gpu.limit, parse_gpus, format_gpus(milli)),
                ("cpu", demand.cpu_milli, figures.cpu.limit, parse_cpu, f"{demand.cpu_milli}m"),
                (
                    "memory",
                    demand.memory_mib,
                    figures.memory.limit,
                    parse_memory,
                    f"{demand.memory_mib}Mi",
                ),
            )
            for resource, amount, limit, parse, shown in asked:
                if limit is not None and amount > parse(limit):
                    is_bytes = resource == "memory" and str(limit).isdigit()
                    most = f"{limit} bytes" if is_bytes else limit
                    forbidding.setdefault(
                        pool,
                        f"asks for {resource}: {shown}, but {queue} may have at most {most} in"
                        f" node pool {pool}; ask for at most that, such as {resource}: {limit}",
                    )
        except UnitError:
            # Invalid figures limit nothing; a condition of the GpuProject reports them.
            continue
    if not set(pools) <= forbidding.keys():
        return None
    return Refused(Reason.OVER_LIMIT, f"{pod_name(case.pod)}: {forbidding[pools[0]]}")


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
        yield f"node pool {unknown[0]:.80} does not exist (yet): the pod waits until it does"
    yield from _larger_than_all(case)
    mib = case.demand.gpu_memory_mib
    if 0 < mib < SMALL_MIB and not case.translation:
        yield f'gpu-memory: {mib} means {mib} MiB: for {mib} GiB write "{mib * 1024}"'
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
        if not case.demand.gpu_memory_mib:
            yield f"{MEMORY_LIMIT} has no effect without gpu-memory, the request in MiB"
        elif pools := [pool for pool in case.pool_names if not case.lends_memory(pool)]:
            yield (
                f"{MEMORY_LIMIT} has no effect in node pool {pools[0]:.80}, which lends no memory:"
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
