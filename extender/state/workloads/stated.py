"""The minimum of a gang: from its GpuPodGroup, else its pods, else the Job that makes them.

Pods carry the number that was valid when they were created, and their owner may be scaled later. So
the youngest pod's number counts, but while pods run, no more than the least that any running pod
states: a running gang is not stopped because its owner wants more pods. If all pods belong to one
Job, the number is never above the pods that the Job runs at once, as far as that is known. A known
size stays in force while pods from its time run: if the Job is scaled up, its gang runs on.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from extender.api.kinds import GpuPodGroup, GpuPodGroupSpec, SubGroup
from extender.api.objects import OwnerReference
from extender.api.workload import SubGroups
from extender.state.pods.facts import PodFacts
from extender.state.workloads.own_groups import repeats_pods

Listed = Sequence[PodFacts]


class ShortJob(Struct, frozen=True):
    """The Job of a gang that has fewer pods than they state; `key` is the workload's."""

    key: str
    namespace: str
    name: str
    uid: str


def spec_of(
    facts: Listed, group: GpuPodGroup | None, job_sizes: Mapping[str, int]
) -> GpuPodGroupSpec:
    """The spec of the group: from its GpuPodGroup first, else from its pods.

    `job_sizes` are the pods that Jobs run at once, by UID, if known. All sub-groups that pods state
    are required, unless the GpuPodGroup states a minimum that is smaller than their sum.
    """
    if not facts[0].group:
        return GpuPodGroupSpec()
    spec = group.spec if group else GpuPodGroupSpec()
    if _is_by_pods(group):
        minimum = _stated_minimum(facts)
        if job_sizes and (job := _job_of(facts)):
            minimum = min(minimum, job_sizes.get(job.uid, minimum))
        spec = structs.replace(spec, min_member=max(1, minimum))
    stated = () if spec.sub_groups else _stated_sub_groups(facts)
    if not stated or 1 < spec.min_member < sum(n_pods for _, n_pods in stated):
        return spec
    sub_groups = [SubGroup(name=name, min_member=n_pods) for name, n_pods in stated]
    return structs.replace(spec, sub_groups=sub_groups, min_sub_group=len(sub_groups))


def short_job(
    key: str,
    facts: Listed,
    group: GpuPodGroup | None,
    n_succeeded: int,
    job_sizes: Mapping[str, int],
) -> ShortJob | None:
    """The Job of a gang that may need fewer pods than they state: it has too few, or its pods run
    while the Job is known to be smaller."""
    if not facts[0].group or not _is_by_pods(group) or not (job := _job_of(facts)):
        return None
    n_needed = _stated_minimum(facts) - n_succeeded
    is_short = sum(not fact.is_terminating for fact in facts) < n_needed
    was_short = job.uid in job_sizes and 0 < sum(map(runs, facts)) < n_needed
    return ShortJob(key, facts[0].namespace, job.name, job.uid) if is_short or was_short else None


def _stated_minimum(facts: Listed) -> int:
    """The minimum that the youngest pod states (the largest if several are as young), or the least
    that a running pod states, if that is less."""
    stated = [(fact.created_at, fact.stated.min_member) for fact in facts if fact.stated.min_member]
    running = (fact.stated.min_member for fact in facts if fact.stated.min_member and runs(fact))
    return min((max(stated, default=(0, 1))[1], *running))


def _stated_sub_groups(facts: Listed) -> SubGroups:
    """The sub-groups of the youngest pod that states any (those with the most pods if several are
    as young), or those with the fewest pods that a running pod states, if fewer."""
    stated = [fact for fact in facts if fact.stated.sub_groups]
    if not stated:
        return ()
    youngest = max(stated, key=lambda fact: (fact.created_at, *_size(fact.stated.sub_groups)))
    running = (fact.stated.sub_groups for fact in stated if runs(fact))
    return min((youngest.stated.sub_groups, *running), key=_size)


def _size(sub_groups: SubGroups) -> tuple[int, SubGroups]:
    return sum(n_pods for _, n_pods in sub_groups), sub_groups


def runs(facts: PodFacts) -> bool:
    """Whether the pod has its node and is not about to leave it."""
    return bool(facts.node) and not facts.is_terminating


def _is_by_pods(group: GpuPodGroup | None) -> bool:
    """Whether the size of the gang comes from its pods and not from the author of a group."""
    return group is None or repeats_pods(group)


def _job_of(facts: Listed) -> OwnerReference | None:
    """The Job that makes all of these pods; None if there is no such Job."""
    maker = facts[0].maker
    if maker is None or not all(fact.is_of_job and fact.maker_uid == maker.uid for fact in facts):
        return None
    return maker
