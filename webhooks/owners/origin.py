"""What is told of a pod's owner, and how the pods that it makes become a gang.

A family says which roles its owner has: templates, how many pods of each are made, and in which
order. The rest is alike for all and is here: only pods that ask for GPUs are counted, because only
they wait at our gate; and only those that are made without waiting for others that are counted,
because a gang that waits for pods that are yet to be made waits for ever. Pods that have succeeded
are counted: the scheduler, which sees them end, takes them off.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from extender.api.demand import DNS_LABEL
from extender.api.objects import ObjectMeta, Pod, PodTemplateSpec
from extender.api.workload import MAX_SUB_GROUPS, SubGroups
from webhooks.vocabulary import asks_for_gpu

#: Longest name of a group: it is the value of a label.
MAX_NAME: Final = 63
#: Larger gangs than any cluster runs are as large as this, so that the number stays one we read.
MAX_MEMBER: Final = 100_000
_HASHED: Final = 8
_FOREIGN: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
_PLAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)


class Owner(Struct, rename="camel", kw_only=True):
    """Any object that owns others; families add the fields of its spec that they read."""

    metadata: ObjectMeta


class Role(Struct, frozen=True):
    """Pods of one template. `n_pods` must run together, and are made when those of all lower
    `stage`s run or have ended."""

    name: str
    n_pods: int
    template: PodTemplateSpec
    stage: int = 0


class OwnerShape(Struct, frozen=True):
    """What an owner says of the pods it makes. `stated` is a minimum that its author wrote, or 0.

    Without roles all that is known is that the pods belong together.
    """

    roles: Sequence[Role] = ()
    stated: int = 0


class Gang(Struct, frozen=True):
    """How many pods must run together, and in which sub-groups, each with its own minimum.

    There are no sub-groups where all pods are alike, where their author states a minimum below all
    of them, or where their names can't be written (`extender.api.workload.read_sub_groups`).
    """

    min_member: int = 1
    sub_groups: SubGroups = ()


class Origin(Struct, frozen=True):
    """What follows from a pod's owner; what is empty is left to others to say.

    `work` is the kind of work; `group` the name that all pods of the owner share. `is_alone`: they
    don't need one another, so they form a group only where their author states a minimum. `whole`
    is the name of the whole owner, where `group` is one part of it of several that are alike.
    """

    work: str = ""
    group: str = ""
    is_alone: bool = False
    gang: Gang = Gang()
    sub_group: str = ""
    whole: str = ""


#: Of a pod without an owner, or with an owner that says nothing about it.
NO_OWNER: Final = Origin()


def makes_gpu_pods(template: PodTemplateSpec) -> bool:
    """Whether pods made from the template will be ours."""
    return asks_for_gpu(Pod(template.metadata, template.spec))


def gang_of(shape: OwnerShape) -> Gang:
    """The gang that pods of this shape form."""
    counted = [role for role in shape.roles if makes_gpu_pods(role.template)]
    first = min((role.stage for role in counted if role.n_pods > 0), default=0)
    needed = tuple(
        (role.name, max(0, role.n_pods) if role.stage == first else 0) for role in counted
    )
    total = sum(n_pods for _, n_pods in needed)
    minimum = max(1, min(total, shape.stated or total, MAX_MEMBER))
    return Gang(minimum, needed if minimum >= total and _can_be_written(needed) else ())


def _can_be_written(sub_groups: SubGroups) -> bool:
    """Whether these are sub-groups that can be told apart by names of ours."""
    are_names = all(DNS_LABEL.fullmatch(name) for name, _ in sub_groups)
    return are_names and 1 < len(sub_groups) == len(dict(sub_groups)) <= MAX_SUB_GROUPS


def group_name(*parts: str) -> str:
    """A name for a group that is always the same for the same parts, and fits into a label.

    What had to be cut or spelled differently ends in a hash, so that no two of them meet.
    """
    whole = "-".join(part for part in parts if part)
    if len(whole) <= MAX_NAME and _PLAIN.fullmatch(whole):
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:_HASHED]
    spelled = _FOREIGN.sub("-", whole.lower())[: MAX_NAME - _HASHED - 1].strip("-")
    return f"{spelled or 'group'}-{digest}"
