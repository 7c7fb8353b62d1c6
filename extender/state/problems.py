"""Mistakes in objects that users write, each with the object where it can be corrected."""

from typing import Literal

from msgspec import Struct

#: `InvalidFigures`: malformed; `UnknownReference`: the named object does not exist;
#: `NamespaceTaken`: the namespace belongs to an older project.
Fault = Literal["InvalidFigures", "UnknownReference", "InvalidLabels", "NamespaceTaken"]


class Problem(Struct, frozen=True, order=True):
    """One sentence about one cluster-scoped object, which also says what is in force instead."""

    kind: str
    name: str
    fault: Fault
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.text}"
