"""Whether kube-scheduler handles the pods that are released to it.

A released pod that is not bound was refused, or kube-scheduler is down; only a refused pod loses
its row. It was refused if kube-scheduler said so on the pod, or if some seconds ago it bound a pod
that was released later. The delay is needed because a kube-scheduler that restarts binds many pods
at once, in any order. While a volume is made for a pod, which may take minutes, kube-scheduler says
nothing and binds others: only its word counts then, and it says so when its own time is over. Pure:
the time is passed in, in seconds of a monotonic clock.
"""

from collections.abc import Iterable
from typing import Final

from extender.state.cluster import ClusterState
from extender.state.model import PodView

#: Kube-scheduler is down if a pod has had no answer, and no pod was bound, for so long.
AWAY_AFTER_S: Final = 10.0


class SchedulerWatch:
    """Follows released pods from one `look` to the next."""

    def __init__(self, state: ClusterState, bind_timeout_s: float) -> None:
        self._state = state
        self._timeout_s = bind_timeout_s
        self._away_after_s = min(AWAY_AFTER_S, bind_timeout_s / 3)
        #: When a pod was first seen released, by UID and epoch of its row.
        self._since: dict[tuple[str, int], float] = {}
        #: The latest release time among the pods that have been bound.
        self._last_bound = float("-inf")
        self._bound_at = float("-inf")
        self._probed_at = float("-inf")
        self._unanswered: set[tuple[str, int]] = set()
        #: When kube-scheduler was first seen to have handled a pod without binding it.
        self._answered_at: dict[tuple[str, int], float] = {}

    def look(self, released: Iterable[PodView], now: float) -> None:
        """Record the pods that are released now, and those bound since the last call."""
        seen = {(pod.uid, pod.epoch): pod for pod in released}
        for key in self._since.keys() - seen.keys():
            since = self._since.pop(key)
            pod = self._state.pod(key[0])
            if pod is not None and pod.state == "bound":
                self._last_bound = max(self._last_bound, since)
                self._bound_at = now
        for key in seen:
            self._since.setdefault(key, now)
        answered = {key for key, pod in seen.items() if self._is_answered(pod)}
        self._answered_at = {key: self._answered_at.get(key, now) for key in answered}
        self._unanswered = {
            key for key, pod in seen.items() if key not in answered and not pod.awaits_volume
        }

    def is_overdue(self, pod: PodView, now: float) -> bool:
        """Whether kube-scheduler refused the pod, and its time for another attempt is over."""
        key = pod.uid, pod.epoch
        waited_s = now - self._since.get(key, now)
        answered_s = now - self._answered_at.get(key, now)
        return waited_s > self._timeout_s and answered_s > self._away_after_s

    def is_away(self, now: float) -> bool:
        """Whether pods wait for an answer while nothing is bound."""
        first = min((self._since[key] for key in self._unanswered), default=now)
        return min(now - first, now - self._bound_at) > self._away_after_s

    def may_probe(self, now: float) -> bool:
        """Whether to release one workload as a probe while kube-scheduler is down; at most once per
        period. With probes, a single pod that is never answered can't stop all others."""
        if now - self._probed_at < self._away_after_s:
            return False
        self._probed_at = now
        return True

    def _is_answered(self, pod: PodView) -> bool:
        """Whether kube-scheduler has handled the pod since its release."""
        if pod.answer or pod.awaits_volume:
            return bool(pod.answer)
        since = self._since.get((pod.uid, pod.epoch))
        return since is not None and since < self._last_bound
