"""G1: a gang runs whole or not at all.

A gang is partial while some of its pods are bound and not terminating, and these and the completed
ones are together fewer than minMember. It may be partial for `gang_bind_s` while it starts. A gang
that was whole and lost a member has `gang_stale_s` in addition, for the member to return or the
other members to be stopped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.auditor.rules.rule import Finding, Limits, Rule
from tests.support.auditor.sight import PodSeen
from tests.support.auditor.world import Step, World


@dataclass(slots=True)
class _Partial:
    since_s: float
    allowed_s: float
    is_told: bool = False


class Gangs(Rule):
    """Counts bound members at every step, and judges by the clock."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._partial: dict[str, _Partial] = {}
        self._was_whole: set[str] = set()

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        keys = {
            f"{pod.namespace}/{pod.group}"
            for pod in (step.before, step.after)
            if isinstance(pod, PodSeen) and pod.group
        }
        if step.change.kind == "GpuPodGroup":
            keys.add(f"{step.change.namespace}/{step.change.name}")
        for key in keys:
            self._note(world, key, step.change.seen_s)
        return iter(())

    def on_baseline(self, world: World) -> Iterator[Finding]:
        for key in world.members:
            minimum, n_bound, n_done = _count(world, key)
            if n_bound and n_bound + n_done >= minimum:
                self._was_whole.add(key)
        return iter(())

    def on_tick(self, world: World, now_s: float) -> Iterator[Finding]:
        for key in [each for each in world.members if each not in self._partial]:
            self._note(world, key, now_s)
        for key, partial in self._partial.items():
            lasted_s = now_s - partial.since_s
            if lasted_s > partial.allowed_s and not partial.is_told:
                partial.is_told = True
                minimum, n_bound, n_done = _count(world, key)
                yield Finding(
                    "G1",
                    f"GpuPodGroup {key}",
                    f"{n_bound} bound and {n_done} completed of at least {minimum}"
                    f" for {lasted_s:.0f} s",
                )

    def _note(self, world: World, key: str, now_s: float) -> None:
        minimum, n_bound, n_done = _count(world, key)
        if n_bound == 0:
            self._was_whole.discard(key)
            self._partial.pop(key, None)
        elif n_bound + n_done >= minimum:
            self._was_whole.add(key)
            self._partial.pop(key, None)
        elif key not in self._partial:
            grace_s = self.limits.gang_stale_s if key in self._was_whole else 0.0
            self._partial[key] = _Partial(now_s, self.limits.gang_bind_s + grace_s)


def _count(world: World, key: str) -> tuple[int, int, int]:
    """(minMember, bound pods that are not terminating, completed pods)."""
    pods = world.group_pods(key)
    group = world.groups.get(key)
    minimum = group.min_member if group else max((pod.min_member for pod in pods), default=0)
    n_bound = sum(1 for pod in pods if pod.node and not pod.has_ended and not pod.is_leaving)
    n_done = sum(1 for pod in pods if pod.phase == "Succeeded")
    return minimum, n_bound, n_done
