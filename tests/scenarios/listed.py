"""Cases for the tests: our own beside this file, others' where the shared material is."""

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from extender.scenario.load import load
from extender.scenario.model.case import Case

HERE = Path(__file__).resolve().parent
OWN = HERE / "cases"
#: Files of our own cases. Cases of time slices are read by the tests of the agent.
OWN_FILES = sorted(file for file in OWN.rglob("*.yaml") if file.parent.name != "time-slicing")
SHARED = Path(os.environ.get("BALLAST_SHARED", HERE.parent.parent.parent / "shared"))
_ENTRY = re.compile(r"^## (?P<id>\S+)$", re.MULTILINE)
_LINE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Disagreement:
    """What a case that we disagree with fails with."""

    id: str
    reasons: tuple[str, ...]


def cases_in(folder: Path) -> list[Case]:
    """All cases of the folder, or none when it is missing; what can't be read fails here."""
    return list(_read(folder))


def shared_cases(folder: str) -> list[Case]:
    """Cases of one folder of the shared scenarios, or none when it is missing."""
    return cases_in(SHARED / "scenarios" / folder)


@cache
def _read(folder: Path) -> tuple[Case, ...]:
    """The cases of a folder, which a process reads once: YAML takes milliseconds a case."""
    if not folder.exists():
        return ()
    loaded = load([folder])
    assert not loaded.broken, loaded.broken
    return tuple(loaded.cases)


def not_yet() -> set[str]:
    """Ids of cases with a missing rule: each must fail, and leaves the list when not."""
    lines = (HERE / "not_yet.txt").read_text().splitlines()
    return {line.partition("#")[0].strip() for line in lines} - {""}


def disagreements(text: str | None = None) -> dict[str, Disagreement]:
    """The entries of disagreements.md, by id."""
    text = (HERE / "disagreements.md").read_text() if text is None else text
    parts = _ENTRY.split(text)[1:]
    found = {}
    for id_, body in zip(parts[::2], parts[1::2], strict=True):
        differs = body.partition("Differs:")[2].partition("Why:")[0]
        found[id_] = Disagreement(id_, tuple(_LINE.findall(differs)))
    return found
