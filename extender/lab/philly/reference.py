"""Reference results of the same protocol, for each rule and cluster size, and the bars to meet.

Source: the replay note (traces, 6.3): one deterministic run each of a simple model of each policy,
not of the named products. Figures are as printed there.
"""

from typing import Final

from msgspec import Struct

#: The project's targets: (bar, goal) by the name of the figure; less is better.
BARS: Final[dict[str, tuple[float, float]]] = {
    "idle_pending_pct": (0.5, 0.2),
    "deprived_gpu_h": (8000.0, 4000.0),
    "lost_gpu_h": (2000.0, 2000.0),
    "worse_tenants": (0.0, 0.0),
}


class Reference(Struct, frozen=True):
    """One row of the note's table; the fields are named as in `Figures`."""

    alloc_pct: float
    mean_wait_h: float
    p99_wait_h: float
    wait_8_h: float
    wait_over_8_h: float
    idle_pending_pct: float
    deprived_gpu_h: float
    unfair_pct: float
    worse_tenants: int
    evictions: int
    moves: int
    lost_gpu_h: float


_Rows = dict[str, Reference]

_OF_64: Final[_Rows] = {
    "private": Reference(87.23, 38.0, 345, 153, 265, 12.77, 16_044, 0, 0, 0, 0, 0),
    "strict-fifo": Reference(88.59, 80.7, 211, 113, 115, 11.15, 147_333, 63.0, 9, 0, 0, 0),
    "fifo-skip": Reference(93.56, 5.4, 66, 45.6, 255, 6.12, 111_963, 11.5, 2, 0, 0, 0),
    "fifo-skip-spread": Reference(91.77, 6.1, 80, 57.0, 307, 8.00, 118_890, 11.7, 2, 0, 0, 0),
    "sjf": Reference(90.80, 1.6, 14, 19.3, 188, 8.90, 100_362, 3.7, 1, 0, 0, 0),
    "fairshare": Reference(92.00, 3.3, 36, 40.5, 213, 7.69, 87_244, 5.0, 1, 0, 0, 0),
    "fairshare-spread": Reference(89.19, 3.5, 53, 63.8, 261, 10.56, 95_436, 4.5, 2, 0, 0, 0),
    "fairshare+consolidation": Reference(
        98.13, 4.1, 22, 19.7, 95, 0.30, 44_848, 13.9, 0, 0, 2334, 631
    ),
    "fairshare+reclaim": Reference(97.50, 5.5, 49, 20.7, 82, 1.70, 7222, 1.6, 0, 8457, 0, 1895),
    "ballast": Reference(98.38, 5.2, 39, 15.5, 81, 0.16, 7183, 3.2, 0, 9381, 2335, 3111),
}
_OF_80: Final[_Rows] = {
    "private": Reference(78.24, 19.6, 169, 45.6, 88.6, 21.76, 27_235, 0, 0, 0, 0, 0),
    "strict-fifo": Reference(82.43, 4.2, 38, 4.5, 5.3, 7.69, 44_428, 19.9, 1, 0, 0, 0),
    "fifo-skip": Reference(82.47, 1.05, 21, 4.0, 10.4, 6.67, 27_777, 6.2, 1, 0, 0, 0),
    "fifo-skip-spread": Reference(82.19, 0.95, 14, 7.4, 45.6, 14.86, 61_093, 5.5, 0, 0, 0, 0),
    "sjf": Reference(82.40, 0.36, 6.1, 2.6, 7.0, 7.63, 19_583, 3.5, 0, 0, 0, 0),
    "fairshare": Reference(82.41, 0.53, 7.9, 3.7, 14.9, 8.79, 17_434, 3.6, 0, 0, 0, 0),
    "fairshare-spread": Reference(81.34, 0.64, 8.8, 7.7, 60.1, 16.54, 52_853, 3.3, 0, 0, 0, 0),
    "fairshare+consolidation": Reference(
        82.52, 0.73, 8.4, 1.7, 3.6, 0.33, 10_599, 6.9, 0, 0, 1278, 338
    ),
    "fairshare+reclaim": Reference(82.59, 0.62, 6.9, 1.1, 5.4, 3.32, 1458, 0.2, 0, 4705, 0, 856),
    "ballast": Reference(82.67, 0.64, 7.3, 0.58, 4.0, 0.24, 994, 0.8, 0, 5307, 1237, 1223),
}
_BY_NODES: Final[dict[int, _Rows]] = {64: _OF_64, 80: _OF_80}


def reference_for(rule: str, nodes: int) -> Reference | None:
    """The note's row for the rule with this many nodes, if it has one."""
    return _BY_NODES.get(nodes, {}).get(rule)
