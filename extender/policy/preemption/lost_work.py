"""What evicting or moving a pod costs: the work that has to be done again, and the restart."""

from typing import Final

from extender.state.model import PodView

#: Seconds that a restart costs whatever the pod has done so far: its container is created again and
#: its program loads libraries, model and data. So a pod that has just been moved is not free to
#: move again.
RESTART_S: Final = 60
#: A save may be late by this part of the time between two: one over it.
_LATE_PART: Final = 10


def seconds_lost(pod: PodView, now_s: int, usual_s: int) -> int:
    """Seconds of the pod's running that a stop wastes: `RESTART_S` and the work since its last
    save.

    A pod that states no checkpoint interval has the node pool's, `usual_s`. Without one (0) it
    saves nothing, so all that it ran is lost. A save counts only once it is late by a tenth of the
    interval, so that no pod is picked right before it saves.
    """
    started_s = pod.started_at
    every_s = usual_s if pod.checkpoint_s is None else pod.checkpoint_s
    ran_s = now_s - started_s if 0 != started_s < now_s else 0
    late_s = every_s // _LATE_PART
    if every_s and ran_s >= every_s + late_s:
        ran_s = (ran_s - late_s) % every_s + late_s
    return RESTART_S + ran_s
