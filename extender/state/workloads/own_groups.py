"""Which GpuPodGroups the controller made, and for which pods."""

from collections.abc import Sequence

from extender.api import names
from extender.api.kinds import GpuPodGroup
from extender.state.pods.facts import PodFacts


def is_made_by_us(group: GpuPodGroup) -> bool:
    """Whether the controller made the group and its spec is unchanged."""
    meta = group.metadata
    return meta.label(names.LABEL_MANAGED_BY) == names.CONTROLLER_NAME and meta.generation <= 1


def repeats_pods(group: GpuPodGroup) -> bool:
    """Whether the group's minimum is copied from its pods and unchanged."""
    said = group.metadata.annotation(names.ANNOTATION_MIN_MEMBER)
    return said == str(group.spec.min_member)


def is_for(group: GpuPodGroup, facts: Sequence[PodFacts]) -> bool:
    """Whether the group is for these pods; one that we made is only for pods of its owners."""
    if not is_made_by_us(group):
        return True
    owners = {owner.uid for owner in group.metadata.owner_references or ()}
    return any(fact.maker_uid in owners for fact in facts)
