"""Requests in words, for messages."""

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, format_cpus, format_gpus


def gpu_text(demand: Demand) -> str:
    """The GPU request, as its owner would write it; empty if there is none."""
    n = demand.devices
    if n == 0 or (demand.milli == MILLI_PER_GPU and n == 1):
        return "1 GPU" if n else ""
    if demand.milli == MILLI_PER_GPU:
        return f"{n} GPUs on one node"
    several = f"each of {n} GPUs of one node"
    if mib := demand.gpu_memory_mib:
        return f"{mib} MiB of GPU memory on {'one GPU' if n == 1 else several}"
    return f"{format_gpus(demand.milli)} of {'a GPU' if n == 1 else several}"


def main_text(demand: Demand) -> str:
    """The GPU request, or the request besides GPUs if there is none."""
    return gpu_text(demand) or host_text(demand)


def full_text(demand: Demand) -> str:
    """The whole request."""
    return " with ".join(each for each in (gpu_text(demand), host_text(demand)) if each)


def host_text(demand: Demand) -> str:
    """The request besides GPUs."""
    asked = [f"{n} {name}" for name, n in demand.counted]
    if demand.cpu_milli:
        asked.append(format_cpus(demand.cpu_milli))
    if demand.memory_mib:
        asked.append(f"{demand.memory_mib} MiB of memory")
    return " and ".join(asked) or "a pod slot"
