"""Conditions of our objects: their types, and since when each holds."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from extender.api.objects import Condition
from extender.api.reasons import SENTENCES, Reason
from extender.api.units import api_time

#: Whether enough pods of a group are bound.
SCHEDULED: Final = "Scheduled"
#: Whether every field is understood and every reference exists.
VALID: Final = "Valid"
#: Whether the pods of a queue hold more than its quota.
OVER_QUOTA: Final = "OverQuota"
#: Whether a project has GPU-hours of the month left in every node pool with a budget.
WITHIN_BUDGET: Final = "WithinBudget"
#: The API server refuses a status with a longer message.
_MAX_MESSAGE: Final = 32_768


def condition(
    kind: str, is_so: bool | None, reason: Reason, message: str, before: Sequence[Condition]
) -> Condition:
    """A condition of this type, Unknown if `is_so` is None; it keeps the transition time of one in
    `before` with the same status."""
    status = "Unknown" if is_so is None else "True" if is_so else "False"
    since = next(
        (
            each.last_transition_time
            for each in before
            if (each.type, each.status) == (kind, status)
        ),
        None,
    )
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=(message or SENTENCES[reason])[:_MAX_MESSAGE],
        last_transition_time=since or api_time(datetime.now(UTC)),
    )


def observed(conditions: Sequence[Condition], generation: int) -> list[Condition]:
    """The same conditions, observed at this generation of the object's spec."""
    return [replace(each, observed_generation=generation) for each in conditions]
