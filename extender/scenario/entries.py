"""Reads a scenario file as plain values: YAML, JSON, or JSON lines.

A duplicate key in a mapping is an error, since one of its values would be lost. An unreadable entry
does not hide the others, as far as the text shows where it ends. Keys that begin with `x-` are
dropped at every level.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from yaml.composer import Composer

from extender.api.yaml_errors import yaml_fault
from extender.scenario.errors import ScenarioError

_MERGE: Final = "tag:yaml.org,2002:merge"
_BYTE: Final = re.compile(r" \(byte (?P<at>[0-9]+)\)")


@dataclass(slots=True, frozen=True)
class Entry:
    """One case as it is written. `place` is its place in the file, `wrong` why it cannot be read;
    `value` is then the readable part, if any."""

    place: str
    value: Any = None
    wrong: str = ""


def read_entries(path: Path) -> list[Entry]:
    """The entries of one file; raises ScenarioError if nothing of it can be read."""
    try:
        text = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror or error}") from error
    is_json = path.suffix in (".json", ".jsonl")
    try:
        if path.suffix == ".jsonl":
            entries = list(_from_lines(text))
        else:
            found = _from_json(text) if is_json else _from_yaml(text)
            entries = [Entry(f"case {at + 1}", *each) for at, each in enumerate(found)]
        if b"x-" in text:
            entries = [Entry(e.place, _without_notes(e.value), e.wrong) for e in entries]
    except RecursionError:
        raise ScenarioError(f"{path}: it is nested too deeply") from None
    except (msgspec.DecodeError, yaml.YAMLError, ValueError) as error:
        # Invalid UTF-8 in JSON is a ValueError.
        message = _BYTE.sub(lambda at: _in_line(text, int(at["at"])), yaml_fault(error))
        raise ScenarioError(f"{path}: not {'JSON' if is_json else 'YAML'}: {message}") from error
    return entries


def _from_lines(text: bytes) -> Iterator[Entry]:
    """The entries of all lines; an invalid line is an entry that cannot be read."""
    for at, line in enumerate(text.split(b"\n"), 1):
        place = f"line {at}"
        if not line.strip():
            continue
        try:
            for value, wrong in _from_json(line):
                yield Entry(place, value, wrong)
        except RecursionError:
            yield Entry(place, wrong="it is nested too deeply")
        except (msgspec.DecodeError, ValueError) as error:
            yield Entry(place, wrong=f"not JSON: {' '.join(str(error).split())}")


class _Twice(dict[str, Any]):
    """A mapping with a duplicate key."""

    key = ""


def _from_json(text: bytes) -> Iterator[tuple[Any, str]]:
    """Each entry, and its error."""
    if not text.strip():
        return
    values = _as_list(msgspec.json.decode(text))
    found: list[_Twice] = []

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) == len(pairs):
            return mapping
        keys = [key for key, _ in pairs]
        twice = _Twice(mapping)
        twice.key = next(key for key in keys if keys.count(key) > 1)
        found.append(twice)
        return twice

    # The strict reader ignores duplicate keys; this one reports them.
    again = _as_list(json.loads(text, object_pairs_hook=read))
    for value, other in zip(values, again, strict=True):
        twice = next(_twice_in(other, ""), "") if found else ""
        yield value, twice


def _twice_in(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, _Twice):
        yield f"{place}: {_name(value.key)} is given twice".removeprefix(": ")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _twice_in(inner, f"{place}.{key}".removeprefix("."))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _twice_in(inner, f"{place}[{at}]")


def _from_yaml(text: bytes) -> Iterator[tuple[Any, str]]:
    """Each entry of all documents, and its error."""
    loader = _Loader(text)
    try:
        while loader.check_node():
            loader.twice.clear()
            node: Any = loader.get_node()
            value = loader.construct_document(node)
            if value is None:
                continue
            items = node.value if isinstance(value, list) else [node]
            for item, each in zip(items, _as_list(value), strict=True):
                lines = range(item.start_mark.line, item.end_mark.line + 1)
                yield each, next((why for line, why in loader.twice if line in lines), "")
    finally:
        loader.dispose()


class _Loader(Composer, yaml.CSafeLoader):
    """Parses in C and composes in Python, so that too deep nesting raises an error instead of
    ending the process. `twice` has the line of every duplicate key, and a sentence."""

    def __init__(self, text: bytes) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self.twice: list[tuple[int, str]] = []

    def compose_mapping_node(self, anchor: Any) -> Any:
        """As the parent's; also records duplicate keys."""
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            line = key.start_mark.line
            if (before := first.get((key.tag, key.value))) is not None:
                message = f"line {line + 1}: {_name(key.value)} is given twice in one mapping"
                self.twice.append((line, f"{message}, first in line {before + 1}"))
            first.setdefault((key.tag, key.value), line)
        return node


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _name(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _in_line(text: bytes, at: int) -> str:
    line, column = text.count(b"\n", 0, at) + 1, at - text.rfind(b"\n", 0, at)
    return f" in line {line}, column {column}"


def _without_notes(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_notes(inner)
            for key, inner in value.items()
            if not (isinstance(key, str) and key.startswith("x-"))
        }
    return [_without_notes(inner) for inner in value] if isinstance(value, list) else value
