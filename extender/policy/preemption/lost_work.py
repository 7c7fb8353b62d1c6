"""What evicting or moving a pod costs: the work to be done again, and the restart."""

from typing import Final

from extender.state.model import PodView

#: Seconds that every restart costs: the container is created again and the program loads libraries,
#: model and data. So moving a pod again right after a move is not free.
RESTART_S: Final = 60
#: A checkpoint may be late by 1/10 of its interval.
_LATE_PART: Final = 10


def seconds_lost(pod: PodView, now_s: int, usual_s: int) -> int:
    """Seconds of running time that stopping the pod wastes: `RESTART_S` and the time since its last
    checkpoint. A nominated pod has not started and wastes none.

    `usual_s` is the node pool's checkpoint interval, for a pod that states none. With an interval
    of 0 the whole running time is lost. A checkpoint counts only a tenth of the interval after it
    is due, so that no pod is selected right before it saves.
    """
    if pod.state == "nominated":
        return 0
    started_s = pod.started_at
    every_s = usual_s if pod.checkpoint_s is None else pod.checkpoint_s
    ran_s = now_s - started_s if 0 != started_s < now_s else 0
    late_s = every_s // _LATE_PART
    if every_s and ran_s >= every_s + late_s:
        ran_s = (ran_s - late_s) % every_s + late_s
    return RESTART_S + ran_s
