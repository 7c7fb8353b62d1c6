"""docs/versions.md lists the fields of a row that an older release lacks and so loses."""

from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import fields

from extender.api.ledger import MoveHold, Row

PAGE: Final = Path(__file__).parents[3] / "docs" / "versions.md"
#: In every release.
FIRST: Final = frozenset(
    [
        "uid",
        "namespace",
        "name",
        "project",
        "group",
        "cards",
        "computeLimitMilli",
        "nonPreemptible",
        "state",
        "epoch",
        "reservedAt",
    ]
)
FIRST_OF_MOVE: Final = frozenset({"owner", "cpuMilli", "memoryMiB"})


def later(kind: type[Struct], first: frozenset[str]) -> set[str]:
    return {each.encode_name for each in fields(kind)} - first


def test_page_lists_every_field_that_an_older_release_lacks() -> None:
    wanted = {f"`spec.rows[].{name}`" for name in later(Row, FIRST)}
    wanted |= {f"`spec.rows[].move.{name}`" for name in later(MoveHold, FIRST_OF_MOVE)}
    text = PAGE.read_text("utf-8")
    assert {name for name in wanted if f"| {name} |" not in text} == set()
