"""Which gangs run with fewer pods than their minimum, and since when.

A gang with a succeeded pod is about to end, and is never stale. There is no clock here: `judge`
notes a gang that falls below its minimum, and the next `date` sets its time.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from extender.api.kinds import GpuPodGroup
from extender.state.model import PodView, WorkloadView
from extender.state.trees import is_below

#: The condition of a GpuPodGroup below its minimum, which tells a later leader since when.
STALE: Final = "Stale"
_LIVE: Final = ("reserved", "bound")


class Gangs:
    """Gangs below their minimum. `groups` are the pod groups, by workload key."""

    def __init__(self, groups: Mapping[str, GpuPodGroup]) -> None:
        self._groups = groups
        self._since: dict[str, int] = {}
        self._undated: set[str] = set()

    def judge(self, view: WorkloadView, is_ending: bool) -> int | None:
        """Since when the workload is below its minimum; None if it is not, or not dated yet.

        `is_ending`: one of its pods has succeeded.
        """
        if not view.is_group or is_ending or not _is_below_minimum(view):
            self.drop(view.key)
            return None
        if view.key not in self._since:
            self._undated.add(view.key)
        return self._since.get(view.key)

    def drop(self, key: str) -> None:
        """The workload is gone, or no longer below its minimum."""
        self._since.pop(key, None)
        self._undated.discard(key)

    def date(self, now_s: int) -> Mapping[str, int]:
        """Date the undated gangs: by their condition, else `now_s`. A date in the future becomes
        `now_s`, because the clock of an earlier leader may have been ahead."""
        dated = {key: min(self._since_in_condition(key) or now_s, now_s) for key in self._undated}
        self._since.update(dated)
        self._undated.clear()
        return dated

    def _since_in_condition(self, key: str) -> int:
        group = self._groups.get(key)
        for condition in group.status.conditions if group else ():
            if condition.type == STALE and condition.status == "True":
                return _unix_s(condition.last_transition_time or "")
        return 0


def _is_below_minimum(view: WorkloadView) -> bool:
    live = [pod.group for pod in view.pods if _is_live(pod)]
    return is_below(view.tree, view.min_member, live)


def _is_live(pod: PodView) -> bool:
    """Whether the pod runs, or is moved and cards are reserved for its successor."""
    return bool(pod.next_node) or (pod.state in _LIVE and not pod.is_terminating)


def _unix_s(text: str) -> int:
    """Unix seconds of an API time; 0 if it is none."""
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0
