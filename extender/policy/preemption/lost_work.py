"""What stopping a pod costs: the work that has to be done again."""

from typing import Final

from extender.state.model import PodView

#: A save may be late by this part of the time between two: one over it.
_LATE_PART: Final = 10


def seconds_lost(pod: PodView, now_s: int) -> int:
    """Seconds of the pod's running that a stop would waste.

    All of them, unless the pod says how often it saves its work: then those since its last save.
    That one is taken to be done late, so that nobody is picked for being just about to save.
    """
    started_s, every_s = pod.started_at, pod.checkpoint_s
    ran_s = now_s - started_s if 0 != started_s < now_s else 0
    if not every_s:
        return ran_s
    late_s = every_s // _LATE_PART
    if ran_s < every_s + late_s:
        return ran_s
    return (ran_s - late_s) % every_s + late_s
