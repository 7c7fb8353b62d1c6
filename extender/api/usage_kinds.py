"""GpuUsage: what a project or a node pool held on one day, by the hour. Written by the controller.

Amounts are milli-GPU-seconds: thousandths of a GPU times seconds, as integers. Days and hours are
those of UTC.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from extender.api.objects import ObjectMeta

HOURS: Final = 24
#: Stands for all users beyond those that a record names; no label can have this value.
OTHER_USERS: Final = "*"

Account = Literal["Project", "NodePool"]
#: One figure for each hour of the day.
ByHour = list[Annotated[int, Meta(ge=0)]]


def no_hours() -> ByHour:
    """A day on which nothing was held."""
    return [0] * HOURS


class UsageLine(Struct, rename="camel", kw_only=True):
    """What one user held of one card model. A node pool's record names no users."""

    user: str
    node_pool: str
    model: str
    held: ByHour = field(default_factory=no_hours)
    lost: ByHour = field(default_factory=no_hours)


class OverQuota(Struct, rename="camel", kw_only=True):
    """What a project held of one node pool above its quota."""

    node_pool: str
    held: ByHour = field(default_factory=no_hours)


class GpuUsageSpec(Struct, rename="camel", kw_only=True):
    """The amounts of one day. `account` and `name` say whose they are."""

    account: Account
    name: str
    day: str
    counted_to: Annotated[int, Meta(ge=0)] = 0
    lines: list[UsageLine] = field(default_factory=list)
    over_quota: list[OverQuota] = field(default_factory=list)


class GpuUsage(Struct, rename="camel", kw_only=True):
    """What a project or a node pool held on one day; named `<day>.<account>[.<name>]`."""

    metadata: ObjectMeta
    spec: GpuUsageSpec
