"""How much memory of a shared card a claim gets.

Consumable capacity (KEP 5075): kube-scheduler rounds the request of a claim up by the request
policy of the device, in bytes (`dynamic-resource-allocation`, `structured/internal/incubating`,
`calculateConsumedCapacity` and `violatesPolicy`).
"""

from typing import Final

from msgspec import Struct

from extender.api.objects import Quantity
from extender.api.units import parse_quantity

#: The capacity of a card that claims consume; a device with any other capacity is no shared card.
MEMORY: Final = "memory"
_MIB: Final = 2**20


class CapacityRange(Struct, gc=False):
    """Amounts from `min` to `max`, in steps from `min`."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicy(Struct, rename="camel", gc=False):
    """Which amounts claims may consume; `default` is for claims that state no amount."""

    default: Quantity | None = None
    valid_range: CapacityRange | None = None
    valid_values: list[Quantity] | None = None


class MemorySteps(Struct, frozen=True, gc=False):
    """The amounts of memory that one claim may get, in bytes; any amount if all fields are empty.

    `values` are in ascending order. With a `step`, an amount is `least` plus a multiple of `step`.
    """

    least: int = 0
    most: int = 0
    step: int = 0
    values: tuple[int, ...] = ()

    def given_mib(self, asked_mib: int) -> int:
        """MiB that a claim for `asked_mib` gets, rounded up; 0 if the card cannot satisfy it."""
        asked = asked_mib * _MIB
        if self.values:
            given = next((value for value in self.values if value >= asked), 0)
        else:
            given = max(asked, self.least)
            if self.step:
                given = self.least - (self.least - given) // self.step * self.step
        return 0 if self.most and given > self.most else -(-given // _MIB)


def memory_steps(policy: RequestPolicy | None) -> MemorySteps:
    """The amounts that the policy allows; raises UnitError."""
    if policy is None:
        return MemorySteps()
    if policy.valid_values:
        return MemorySteps(values=tuple(sorted(map(parse_quantity, policy.valid_values))))
    valid = policy.valid_range or CapacityRange()
    least, most, step = (
        parse_quantity(each) if each is not None else 0
        for each in (valid.min, valid.max, valid.step)
    )
    return MemorySteps(least, most, step)


def read_mib(asked: Quantity) -> int:
    """The MiB that a claim requests, 0 unless it is a whole number of MiB; raises UnitError."""
    n_bytes = parse_quantity(asked)
    return 0 if n_bytes % _MIB else n_bytes // _MIB
