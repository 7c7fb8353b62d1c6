"""GPU work within a quota, which reclaim for work without GPUs leaves alone."""

from collections.abc import Mapping

from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import NOTHING
from extender.policy.queues.common_ancestor import compared
from extender.policy.queues.queue import Queue
from extender.state.model import GPU


def protect_gpu_quotas(
    candidates: Candidates, level_of: Mapping[Queue, int], is_safe: bytearray
) -> bytearray:
    """Protect pods with GPUs, except those that their queues hold above GPU quotas, cheapest first:
    reclaiming CPU must not evict GPU work within a quota."""
    owner, rank, age, lost = candidates.owner, candidates.rank, candidates.age, candidates.lost
    turn, pods = candidates.turn, candidates.pods
    path_of = {leaf: compared(leaf, level_of)[0] for leaf in {*candidates.leaves}}
    left = {q: q.allocated[GPU] - q.quota[GPU] for path in path_of.values() for q in path}
    is_gpu_work = [demand.is_gpu_work for demand, _ in candidates.shapes]
    with_gpus = [p for p, shape in enumerate(candidates.shape) if is_gpu_work[shape]]

    def is_above_quotas(p: int) -> bool:
        gpu, path = candidates.amounts[3 * p], path_of[candidates.leaves[owner[p]]]
        return all(left[queue] >= gpu for queue in path)

    found = bytearray(is_safe)
    for p in with_gpus:
        found[p] = NOTHING
    above = sorted(
        filter(is_above_quotas, with_gpus),
        key=lambda p: (rank[owner[p]], lost[p], age[owner[p]], turn[p], pods[p].uid),
    )
    # Each pod that is not protected lowers what its queues have above their quotas.
    for p in filter(is_above_quotas, above):
        found[p] = is_safe[p]
        for queue in path_of[candidates.leaves[owner[p]]]:
            left[queue] -= candidates.amounts[3 * p]
    return found
