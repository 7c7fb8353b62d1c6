"""What people wrote and cannot have meant, with the object where they can mend it."""

from typing import Literal

from msgspec import Struct

#: `InvalidFigures` are malformed; what `UnknownReference` names does not exist; a namespace that is
#: `NamespaceTaken` belongs to an older project.
Fault = Literal["InvalidFigures", "UnknownReference", "InvalidLabels", "NamespaceTaken"]


class Problem(Struct, frozen=True, order=True):
    """One sentence about one cluster-scoped object; what is in force instead is part of it."""

    kind: str
    name: str
    fault: Fault
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.text}"
