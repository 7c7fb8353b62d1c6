"""The share of each card that a pod gets where it is placed."""

from collections.abc import Iterable

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.api.units import MILLI_PER_GPU, share_mib, share_milli


def card_shares(demand: Demand, card_mib: int, indices: Iterable[int]) -> tuple[CardShare, ...]:
    """The pod's share of each card in `indices`; each of these cards has `card_mib` MiB."""
    if demand.gpu_memory_mib:
        milli, mib = share_milli(demand.gpu_memory_mib, card_mib), demand.gpu_memory_mib
    elif demand.milli == MILLI_PER_GPU:
        milli, mib = MILLI_PER_GPU, card_mib
    else:
        milli, mib = demand.milli, share_mib(demand.milli, card_mib)
    return tuple(CardShare(index=index, milli=milli, memory_mib=mib) for index in indices)
