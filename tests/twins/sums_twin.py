"""The Python twin of `sums.pyx`: sums of idle resources, and of what queues could release."""

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.kernels.nodes import Nodes
    from extender.kernels.sums import Workloads


def sum_idle(nodes: "Nodes", candidates: "array[int]", out: "array[int]") -> None:
    """As `sums.sum_idle`."""
    cards = nodes.cards
    free = [
        cards.card_free[ix * cards.stride + card]
        for ix in candidates
        for card in range(cards.n_cards[ix])
    ]
    out[0] = sum(milli for milli in free if milli > 0)
    out[1] = sum(max(0, nodes.free_cpu_milli[ix]) for ix in candidates)
    out[2] = sum(max(0, nodes.free_memory_mib[ix]) for ix in candidates)


def sum_units(workloads: "Workloads", total: "array[int]", largest: "array[int]") -> None:
    """As `sums.sum_units`."""
    for at in range(len(total)):
        queue, resource = divmod(at, 3)
        given = [
            workloads.whole_amounts[3 * w + resource]
            for w, q in enumerate(workloads.queue)
            if q == queue
        ]
        total[at], largest[at] = sum(given), max(given, default=0)
