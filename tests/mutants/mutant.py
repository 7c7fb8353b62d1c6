"""A mutant: one small error, and the test that notices it."""

import tomllib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


class Mutant(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`old`, which is in `file` once, becomes `new`; then `caught_by` (a node id) has to fail."""

    name: str
    breaks: str
    file: str
    old: str
    new: str
    caught_by: str

    def fault(self) -> str:
        """Why it cannot be tried on this tree; empty when it can."""
        n = (ROOT / self.file).read_text("utf-8").count(self.old)
        if n != 1:
            return f"{self.name}: its text is in {self.file} {n} times, not once"
        path, _, test = self.caught_by.partition("::")
        function = test.rsplit("::", 1)[-1].partition("[")[0]
        if f"def {function}(" not in (ROOT / path).read_text("utf-8"):
            return f"{self.name}: {path} has no {function}"
        return ""


class _Table(Struct, forbid_unknown_fields=True):
    mutant: list[Mutant]


def all_mutants() -> list[Mutant]:
    """Every mutant of every table, in the order of the files."""
    return [
        each
        for path in sorted(HERE.glob("*.toml"))
        for each in msgspec.convert(tomllib.loads(path.read_text("utf-8")), _Table).mutant
    ]
