"""Value types that several mappings of a scenario file share, and the base of all mappings.

Fields have the names of the file in snake case. Amounts are kept as written; they are converted by
`extender.scenario.amounts`, so that an invalid one can be reported with its place.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from extender.api.units import MAX_WEIGHT

Amount = int | float | str
Limit = Amount | None
#: Bounds far above any cluster, so that sums stay far below 64 bits.
MOST: Final = 1_000_000
_MOST_SECONDS: Final = 1_000_000_000
Name = Annotated[str, Meta(min_length=1)]
Natural = Annotated[int, Meta(ge=0, le=MOST)]
Weight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]
Count = Annotated[int, Meta(ge=1, le=MOST)]
Rank = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Seconds = (
    Annotated[int, Meta(ge=0, le=_MOST_SECONDS)] | Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]
)
Duration = (
    Annotated[int, Meta(ge=1, le=_MOST_SECONDS)] | Annotated[float, Meta(ge=1, le=_MOST_SECONDS)]
)
PreemptionPolicy = Literal["PreemptLowerPriority", "Never"]
Kind = Literal["interactive", "build", "training", "inference"]
#: Possible states of a task at the start; a bound one runs when the first cycle begins.
StartState = Literal["pending", "bound", "running", "nominated", "evicted"]
Status = Literal["pending", "bound", "running", "nominated", "evicted"]


class Written(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, gc=False):
    """A mapping of the file. Undeclared fields are errors."""
