"""The Python twin of `shares.pyx`: the same division from plain code."""

from array import array
from typing import Final

WHOLE: Final = 1000


def divide(
    surplus: int,
    weight: "array[int]",
    room: "array[int]",
    granule: "array[int]",
    out: "array[int]",
) -> int:
    """As `shares.divide`."""
    for i in range(len(weight)):
        out[i] = 0
    claimants = [i for i in range(len(weight)) if weight[i] > 0 and room[i] > 0]
    while claimants and surplus > 0:
        total = sum(weight[i] for i in claimants)
        content = [i for i in claimants if room[i] <= surplus * weight[i] // total]
        if not content:
            return _round(surplus, claimants, (weight, room, granule), out)
        for i in content:
            out[i] = room[i]
            surplus -= room[i]
        claimants = [i for i in claimants if i not in content]
    return surplus


def _round(
    surplus: int,
    claimants: list[int],
    figures: "tuple[array[int], array[int], array[int]]",
    out: "array[int]",
) -> int:
    weight, room, granule = figures
    total = sum(weight[i] for i in claimants)
    left, rest = surplus, {}
    for i in claimants:
        out[i] = surplus * weight[i] // total // granule[i] * granule[i]
        rest[i] = surplus * weight[i] - out[i] * total
        left -= out[i]
    is_first = True
    while left > 0:
        for i in sorted(claimants, key=lambda i: (-rest[i], i)):
            step = min(granule[i] if is_first else WHOLE, room[i] - out[i], left)
            out[i] += step
            left -= step
        is_first = False
    return left
