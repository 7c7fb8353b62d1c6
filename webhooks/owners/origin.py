"""The owner of a pod, and how the pods that the owner creates form a gang.

Each kind of owner describes its roles: pod templates, pods per role, and their order. The rest is
common and lives here. Only pods that request GPUs are counted, because only they wait at our gate.
Only pods that are created without waiting for other counted pods are counted, because a gang must
not wait for pods that are created later. Pods that have succeeded are counted: the scheduler sees
them end, and subtracts them.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from extender.api.names import DNS_LABEL
from extender.api.objects import ObjectMeta, Pod, PodTemplateSpec
from extender.api.workload import MAX_SUB_GROUPS, SubGroups
from webhooks.vocabulary import asks_for_gpu

#: Longest name of a group, because it is a label value.
MAX_NAME: Final = 63
#: Upper bound for a gang's size, above any real cluster, so that the number stays parseable.
MAX_MEMBER: Final = 100_000
_HASHED: Final = 8
_FOREIGN: Final = re.compile(r"[^a-z0-9]+", re.ASCII)


class Owner(Struct, rename="camel", kw_only=True):
    """An object that owns others; each kind adds the spec fields that it reads."""

    metadata: ObjectMeta


class Role(Struct, frozen=True):
    """Pods of one template. `n_pods` must run together; they are created once the pods of all lower
    `stage`s run or have ended, and the pods of all roles in `ended` have ended. `is_leader`: the
    other pods do nothing without them, so a stated minimum includes them."""

    name: str
    n_pods: int
    template: PodTemplateSpec
    stage: int = 0
    ended: frozenset[str] = frozenset()
    is_leader: bool = False


class OwnerShape(Struct, frozen=True):
    """The roles of the pods that an owner creates. `stated` is a minimum that its author wrote, or
    0.

    Without roles, all that is known is that the pods belong together.
    """

    roles: Sequence[Role] = ()
    stated: int = 0


class Gang(Struct, frozen=True):
    """How many pods must run together, and the sub-groups with their own minimums.

    There are no sub-groups if all pods are alike, if the stated minimum is below the total and no
    role leads the others, or if the names cannot be written
    (`extender.api.workload.read_sub_groups`).
    """

    min_member: int = 1
    sub_groups: SubGroups = ()


class Origin(Struct, frozen=True):
    """What a pod's owner determines about the pod; empty fields are undetermined.

    `work` is the kind of work; `group` the name that all pods of the owner share. `is_alone`: the
    pods don't need one another, so they form a group only if their author states a minimum. `whole`
    is the name of the whole owner if `group` is only one of several equal parts of it.
    """

    work: str = ""
    group: str = ""
    is_alone: bool = False
    gang: Gang = Gang()
    sub_group: str = ""
    whole: str = ""


#: For a pod without an owner, or with an owner that determines nothing.
NO_OWNER: Final = Origin()


def makes_gpu_pods(template: PodTemplateSpec) -> bool:
    """Whether pods created from the template request GPUs."""
    return asks_for_gpu(Pod(template.metadata, template.spec))


def gang_of(shape: OwnerShape, role_name: str) -> Gang:
    """The gang that pods of this shape form, as a pod of the named role finds it."""
    ended = next((role.ended for role in shape.roles if role.name == role_name), frozenset[str]())
    counted = [
        (role, 0 if role.name in ended else max(0, role.n_pods))
        for role in shape.roles
        if makes_gpu_pods(role.template)
    ]
    first = min((role.stage for role, n_pods in counted if n_pods), default=0)
    needed = tuple((role.name, n_pods if role.stage == first else 0) for role, n_pods in counted)
    total = sum(n_pods for _, n_pods in needed)
    minimum = max(1, min(total, shape.stated or total, MAX_MEMBER))
    if minimum < total:
        leaders = {role.name for role, _ in counted if role.is_leader}
        needed = tuple((name, n_pods if name in leaders else 0) for name, n_pods in needed)
    is_divided = 0 < sum(n_pods for _, n_pods in needed) <= minimum and _can_be_written(needed)
    return Gang(minimum, needed if is_divided else ())


def _can_be_written(sub_groups: SubGroups) -> bool:
    """Whether these are sub-groups with distinct names that Ballast accepts."""
    are_names = all(DNS_LABEL.fullmatch(name) for name, _ in sub_groups)
    return are_names and 1 < len(sub_groups) == len(dict(sub_groups)) <= MAX_SUB_GROUPS


def group_name(*parts: str) -> str:
    """A deterministic group name for these parts that is a valid label value.

    A name that had to be cut or spelled differently ends in a hash, so that different parts never
    collide.
    """
    whole = "-".join(part for part in parts if part)
    if DNS_LABEL.fullmatch(whole):
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:_HASHED]
    spelled = _FOREIGN.sub("-", whole.lower())[: MAX_NAME - _HASHED - 1].strip("-")
    return f"{spelled or 'group'}-{digest}"
