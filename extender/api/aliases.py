"""Labels and annotations with several names: ours, and those of other schedulers.

The first name of each is ours. Names that are present together must have equal values.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from extender.api import names
from extender.api.objects import ObjectMeta
from extender.api.units import UnitError

#: Labels that name a pod's project, ours first; then Run:ai's and KAI's.
PROJECT_LABELS: Final = (names.LABEL_PROJECT, "runai/queue", "kai.scheduler/queue")
#: Labels that name a pod's group: ours, then the coscheduling plugin's, newest first.
GROUP_LABELS: Final = (
    names.LABEL_POD_GROUP,
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io",
)
#: Labels that name the sub-group, ours first; then KAI's.
SUB_GROUP_LABELS: Final = (names.LABEL_SUB_GROUP, "kai.scheduler/subgroup-name")
#: Labels that name the user, ours first; then YuniKorn's.
USER_LABELS: Final = (names.LABEL_USER, "yunikorn.apache.org/username")
#: Annotations with topology constraints, ours first; then KAI's and Kueue's.
TOPOLOGY_KEYS: Final = (names.ANNOTATION_TOPOLOGY, "kai.scheduler/topology")
TOPOLOGY_REQUIRED_KEYS: Final = (
    names.ANNOTATION_TOPOLOGY_REQUIRED,
    "kai.scheduler/topology-required-placement",
    "kueue.x-k8s.io/podset-required-topology",
)
TOPOLOGY_PREFERRED_KEYS: Final = (
    names.ANNOTATION_TOPOLOGY_PREFERRED,
    "kai.scheduler/topology-preferred-placement",
    "kueue.x-k8s.io/podset-preferred-topology",
)
MIN_MEMBER_KEYS: Final = (
    names.ANNOTATION_MIN_MEMBER,
    "pod-group.scheduling.sigs.k8s.io/min-available",
)

#: Labels that say whether a pod may be evicted for others, ours first; then KAI's.
PREEMPTIBILITY_LABELS: Final = (names.LABEL_PREEMPTIBILITY, "kai.scheduler/preemptibility")
#: Labels and annotations with several names; those that are present must have equal values.
_ALIASED_LABELS: Final = (
    GROUP_LABELS,
    SUB_GROUP_LABELS,
    PROJECT_LABELS,
    USER_LABELS,
    PREEMPTIBILITY_LABELS,
)
_ALIASED_NOTES: Final = (TOPOLOGY_KEYS, TOPOLOGY_REQUIRED_KEYS, TOPOLOGY_PREFERRED_KEYS)
#: Keys that are read on pods only. The namespace decides the project, even if an owner names one.
POD_LABELS: Final = frozenset(
    chain(GROUP_LABELS, SUB_GROUP_LABELS, USER_LABELS, PREEMPTIBILITY_LABELS)
)
POD_NOTES: Final = frozenset(chain(*_ALIASED_NOTES, MIN_MEMBER_KEYS))


def first_of(mapping: Mapping[str, str] | None, keys: Iterable[str]) -> str:
    """The first non-empty value of these keys, else the empty string."""
    if mapping:
        for key in keys:
            if value := mapping.get(key):
                return value
    return ""


def written(mapping: Mapping[str, str] | None, keys: Sequence[str]) -> str:
    """The first of these keys that is there, as messages name it; the first key if none is."""
    return next((key for key in keys if key in (mapping or {})), keys[0])


def agreed(mapping: Mapping[str, str] | None, keys: Iterable[str]) -> str:
    """The value that all present `keys` have in common; raises UnitError if two differ."""
    first, said_by = "", ""
    for key in keys if mapping else ():
        value = mapping.get(key) if mapping else None
        if value and not first:
            first, said_by = value, key
        elif value and value != first:
            raise UnitError(f"{said_by} and {key} differ; keep one of them")
    return first


def check_aliases(meta: ObjectMeta) -> None:
    """Raise UnitError if aliases of one label or annotation have different values."""
    for aliases in _ALIASED_LABELS:
        agreed(meta.labels, aliases)
    for aliases in _ALIASED_NOTES:
        agreed(meta.annotations, aliases)
