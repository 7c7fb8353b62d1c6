"""Values of a scenario file that several mappings have, and what all mappings are.

Fields have the names of the file in snake case. Amounts stay as they were written here; they are
read by `extender.scenario.amounts`, so that a wrong one can be named with its place.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from extender.api.units import MAX_WEIGHT

Amount = int | float | str
Limit = Amount | None
#: Bounds that no cluster comes near, so that sums stay far below what 64 bits hold.
MOST: Final = 1_000_000
_MOST_SECONDS: Final = 1_000_000_000
#: Cards of a node: a set of them is a word of 64 bits.
MOST_CARDS: Final = 64
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
Kind = Literal["interactive", "build", "training", "inference"]
#: What a file may say that a task is at the start; what is bound runs when the first cycle begins.
StartState = Literal["pending", "bound", "running", "nominated", "evicted"]
Status = Literal["pending", "bound", "running", "nominated", "evicted"]


class Written(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, gc=False):
    """A mapping of the file. What it does not declare is an error."""
