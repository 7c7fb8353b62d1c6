"""GpuUsage: the usage of a project or a node pool on one day, by hour. The controller writes it.

Amounts are integers in milli-GPU-seconds: thousandths of a GPU times seconds. Days and hours are in
UTC.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from extender.api.objects import ObjectMeta

HOURS: Final = 24
#: Stands for all users that a record does not name; no label can have this value.
OTHER_USERS: Final = "*"

Account = Literal["Project", "NodePool"]
#: One figure for each hour of the day.
ByHour = list[Annotated[int, Meta(ge=0)]]


def no_hours() -> ByHour:
    """The hours of a day without usage."""
    return [0] * HOURS


class UsageLine(Struct, rename="camel", kw_only=True):
    """Usage of one card model by one user; `user` is empty in the record of a node pool."""

    user: str
    node_pool: str
    model: str
    held: ByHour = field(default_factory=no_hours)
    lost: ByHour = field(default_factory=no_hours)


class OverQuota(Struct, rename="camel", kw_only=True):
    """Usage of a project above its quota in one node pool."""

    node_pool: str
    held: ByHour = field(default_factory=no_hours)


class GpuUsageSpec(Struct, rename="camel", kw_only=True):
    """The usage of one day. `account` and `name` identify the GpuProject or GpuNodePool."""

    account: Account
    name: str
    day: str
    counted_to: Annotated[int, Meta(ge=0)] = 0
    lines: list[UsageLine] = field(default_factory=list)
    over_quota: list[OverQuota] = field(default_factory=list)


class GpuUsage(Struct, rename="camel", kw_only=True):
    """Usage of a project or node pool on one day; its name is `<day>.<account>[.<name>]`."""

    metadata: ObjectMeta
    spec: GpuUsageSpec
