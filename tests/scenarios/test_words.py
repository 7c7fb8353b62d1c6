"""Every word of the scenario format is accepted, and a case shows what it is for."""

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.scenario.entries import read_entries
from extender.scenario.errors import ScenarioError
from extender.scenario.faults import faults_of
from extender.scenario.load import case_of
from extender.scenario.run import run_case
from tests.scenarios.listed import OWN, SHARED

Word = tuple[str, ...]
#: Words that decide nothing: what a case is called and where it comes from, and zones (a note says
#: so). `after` of rounds only adds cycles in which nothing may change.
SILENT: Final = {
    *(("scenario",), ("id",), ("about",), ("tags",), ("nodes", "numa"), ("rounds", "after"))
}
#: Keys of these are names that a case gives, not words of the format; some have only names below.
NAMED: Final = {"pools", "set"}
LABELS: Final = {"labels", "match", "instances", "nodeTypes"}
#: What must come out changes nothing of what does.
EXPECTED: Final = {"expect", "source", "steps"}
MOST_TRIED: Final = 80


def test_the_format_s_own_block_is_accepted() -> None:
    case_of(block(), "FORMAT.md")


def test_every_word_decides_something_in_a_case() -> None:
    assert [".".join(word) for word in words(block()) if not has_effect(word)] == []
    assert not has_effect(("nodes", "numa")), "a word without effect is to be noticed"


@cache
def block() -> dict[str, Any]:
    """The mapping that the format shows; skips where it is not at hand."""
    path = SHARED / "scenarios" / "FORMAT.md"
    if not path.exists():
        pytest.skip("the scenario format is not at hand")
    found: dict[str, Any] = yaml.safe_load(path.read_text().split("```yaml\n")[1].split("```")[0])
    return found


def words(entry: dict[str, Any]) -> Iterator[Word]:
    """All words of the format that decide something."""
    seen = dict.fromkeys(_paths(entry, ()))
    yield from (word for word in seen if word not in SILENT and word[0] not in EXPECTED)


def _paths(value: Any, path: Word) -> Iterator[Word]:
    if isinstance(value, list):
        for each in value:
            yield from _paths(each, path)
    elif isinstance(value, dict) and not (path and path[-1] in LABELS):
        for key, each in value.items():
            at = path if path and path[-1] in NAMED else (*path, key)
            if at != path:
                yield at
            yield from _paths(each, (*path, "*") if at == path else at)


def has_effect(word: Word) -> bool:
    """Whether a case fails, or can't be read, without the word."""
    tried = 0
    for entry in cases():
        changed = copy.deepcopy(entry) if has(entry, word) else None
        if changed is None or tried >= MOST_TRIED:
            continue
        tried += 1
        without(changed, word)
        try:
            case = case_of(changed, "changed")
        except ScenarioError:
            return True
        if list(faults_of(case)) or run_case(case, lambda: 0).result == "failed":
            return True
    return False


@cache
def cases() -> list[dict[str, Any]]:
    """All of our cases as they are written, the short ones first."""
    files = sorted(Path(OWN).rglob("*.yaml"))
    entries = [entry.value for file in files for entry in read_entries(file)]
    return sorted((e for e in entries if "scenario" in e), key=lambda entry: len(str(entry)))


def has(value: Any, word: Word) -> bool:
    """Whether the word is somewhere in the entry."""
    if isinstance(value, list):
        return any(has(each, word) for each in value)
    if not word or not isinstance(value, dict):
        return not word
    found = value.values() if word[0] == "*" else [value[word[0]]] if word[0] in value else []
    return any(has(each, word[1:]) if word[1:] else True for each in found)


def without(value: Any, word: Word) -> None:
    """Take the word out of the entry, wherever it is."""
    if isinstance(value, list):
        for each in value:
            without(each, word)
    elif isinstance(value, dict):
        if len(word) == 1:
            value.pop(word[0], None)
        for key in list(value) if word[0] == "*" else [word[0]] if len(word) > 1 else []:
            without(value.get(key), word[1:])
