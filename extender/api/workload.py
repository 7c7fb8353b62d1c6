"""What a pod states about its workload: size, sub-groups, floor, run time, checkpoints, weight.

The aliases that other schedulers define are in `extender.api.aliases`.
"""

import re
from collections.abc import Mapping
from typing import Final

from extender.api import names
from extender.api.aliases import MIN_MEMBER_KEYS, agreed, first_of
from extender.api.names import DNS_LABEL
from extender.api.objects import Pod
from extender.api.units import MAX_WEIGHT, UnitError, parse_positive

#: Sub-groups in order, with the pods of each that must run together.
SubGroups = tuple[tuple[str, int], ...]
MAX_SUB_GROUPS: Final = 64
_COUNT: Final = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
#: End of the error message for a wrong number of seconds.
_OF_SECONDS: Final = '; the unit is seconds: for 30 minutes write "1800"'


def read_min_member(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> int:
    """The minimum of the pod's group that the pod states, else 0; raises UnitError."""
    for mapping in (annotations, labels):
        if text := agreed(mapping, MIN_MEMBER_KEYS):
            key = next(each for each in MIN_MEMBER_KEYS if (mapping or {}).get(each))
            return parse_positive(text, key)
    return 0


def read_sub_groups(annotations: Mapping[str, str] | None, min_member: int) -> SubGroups:
    """The sub-groups that the pod states; raises UnitError.

    Their sum may not exceed the `min_member` that it states (0: none).
    """
    key = names.ANNOTATION_SUB_GROUPS
    text = first_of(annotations, (key,))
    if not text:
        return ()
    parts = text.split(",", MAX_SUB_GROUPS)
    found = tuple(_sub_group(part) for part in parts[:MAX_SUB_GROUPS])
    if len(parts) > MAX_SUB_GROUPS or len(dict(found)) < len(found):
        raise UnitError(f"{key}: give at most {MAX_SUB_GROUPS} different names")
    total = sum(n_pods for _, n_pods in found)
    if min_member and total > min_member:
        raise UnitError(
            f"{key}: {total} pods in all are more than min-member, {min_member}; raise min-member"
            " or leave it out"
        )
    return found


def read_floor(annotations: Mapping[str, str] | None) -> int:
    """The floor of the pod's owner: how many replicas are not evicted; else 0. Raises UnitError."""
    key = names.ANNOTATION_FLOOR
    text = first_of(annotations, (key,))
    return parse_positive(text, key) if text else 0


def read_checkpoint(annotations: Mapping[str, str] | None) -> int | None:
    """Seconds of run time between two checkpoints; 0: the pod saves nothing; None if not stated.

    Raises UnitError.
    """
    text = first_of(annotations, (names.ANNOTATION_CHECKPOINT,))
    if not text:
        return None
    return 0 if text == "0" else parse_positive(text, names.ANNOTATION_CHECKPOINT, _OF_SECONDS)


def read_run(pod: Pod) -> int | None:
    """The pod's run time in seconds: its expected run time or `activeDeadlineSeconds`, whichever is
    smaller; None if it states neither. Raises UnitError."""
    key = names.ANNOTATION_EXPECTED_RUN
    text = first_of(pod.metadata.annotations, (key,))
    expected_s = parse_positive(text, key, _OF_SECONDS) if text else None
    deadline_s = pod.spec.active_deadline_seconds
    return min((each for each in (expected_s, deadline_s) if each), default=None)


def read_weight(annotations: Mapping[str, str] | None) -> int:
    """Weight of the pod's workload within its project; 0 if not stated. Raises UnitError."""
    text = first_of(annotations, (names.ANNOTATION_WEIGHT,))
    if not text:
        return 0
    if not _COUNT.fullmatch(text) or not 1 <= int(text) <= MAX_WEIGHT:
        raise UnitError(
            f"{names.ANNOTATION_WEIGHT}: {text[:80]!r} is not a whole number from 1 to"
            f' {MAX_WEIGHT}, such as "2"'
        )
    return int(text)


def write_sub_groups(sub_groups: SubGroups) -> str:
    """The text that `read_sub_groups` parses."""
    return ",".join(f"{name}={n_pods}" for name, n_pods in sub_groups)


def _sub_group(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not DNS_LABEL.fullmatch(name) or not _COUNT.fullmatch(count):
        raise UnitError(
            f"{names.ANNOTATION_SUB_GROUPS}: {text[:80]!r} is not a name of at most 63 characters"
            ' of a-z, 0-9 and -, and a whole number up to 999999, such as "driver=1,workers=8"'
        )
    return name, int(count)
