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
    ran_s = max(0, now_s - pod.started_at) if pod.started_at else 0
    late_s = pod.checkpoint_s // _LATE_PART
    if not pod.checkpoint_s or ran_s < pod.checkpoint_s + late_s:
        return ran_s
    return (ran_s - late_s) % pod.checkpoint_s + late_s
