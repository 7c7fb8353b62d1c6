"""Which gangs run with fewer pods than they must, and since when.

A gang of which a pod has succeeded is on its way to its end and is never one of them. There is no
clock here: a gang that falls is told by `judge`, and is given its time by the next `date`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from extender.api.kinds import GpuPodGroup
from extender.state.model import PodView, WorkloadView
from extender.state.trees import is_below

#: The condition of a GpuPodGroup that says it is below its minimum, for a leader that comes later.
STALE: Final = "Stale"
_LIVE: Final = ("reserved", "bound")


class Gangs:
    """Gangs below their minimum. `groups` are the pod groups, by workload key."""

    def __init__(self, groups: Mapping[str, GpuPodGroup]) -> None:
        self._groups = groups
        self._since: dict[str, int] = {}
        self._undated: set[str] = set()

    def judge(self, view: WorkloadView, is_ending: bool) -> int | None:
        """Since when the workload is below its minimum; None when it isn't, or has no date yet.

        `is_ending`: a pod of it has succeeded.
        """
        if not view.is_group or is_ending or not _has_fallen(view):
            self.drop(view.key)
            return None
        if view.key not in self._since:
            self._undated.add(view.key)
        return self._since.get(view.key)

    def drop(self, key: str) -> None:
        """The workload is gone, or not below its minimum."""
        self._since.pop(key, None)
        self._undated.discard(key)

    def date(self, now_s: int) -> Mapping[str, int]:
        """Set the time of those that have none yet: now, or the one in their condition, which is
        not later: the clock of an earlier leader may have been ahead."""
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


def _has_fallen(view: WorkloadView) -> bool:
    live = [pod.group for pod in view.pods if _is_live(pod)]
    return is_below(view.tree, view.min_member, live)


def _is_live(pod: PodView) -> bool:
    """Whether the pod runs, or leaves for a place that is kept for its successor."""
    return bool(pod.next_node) or (pod.state in _LIVE and not pod.is_terminating)


def _unix_s(text: str) -> int:
    """Unix seconds of an API time, 0 for what is none."""
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0
