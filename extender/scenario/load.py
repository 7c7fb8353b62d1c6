"""Reading scenario files: what is wrong with one is a sentence with file, case and field.

A file holds one case, a list of them, or (`.jsonl`) one on each line; a YAML file may hold several
documents. In a folder, files none of whose entries say `scenario` are passed over. Keys that begin
with `x-` are dropped at every level before anything is looked at.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import inspect

from extender.scenario.checks import wrong_amounts
from extender.scenario.errors import ScenarioError
from extender.scenario.model import Case

ENDINGS: Final = (".yaml", ".yml", ".json", ".jsonl")
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<key>[^\]]*)\]")


@dataclass(slots=True, frozen=True)
class Broken:
    """A case, or a whole file, that can't be used, and why."""

    id: str
    why: str


@dataclass(slots=True)
class Loaded:
    """All cases of some files, in their order, and what could not be read.

    `files` has the file of each case, by its id.
    """

    cases: list[Case] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)


def load(paths: Iterable[Path]) -> Loaded:
    """The cases of files and folders. Ids are unique over all of them."""
    loaded = Loaded()
    for path, is_named in find_files(paths):
        try:
            entries = read_entries(path)
        except ScenarioError as error:
            loaded.broken.append(Broken(str(path), str(error)))
            continue
        if not is_named and not any(isinstance(e, dict) and "scenario" in e for e in entries):
            continue
        for at, entry in enumerate(entries):
            _take(loaded, path, _name_of(entry, at), entry)
    return loaded


def find_files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, and whether each was named itself; folders are searched in order of names."""
    for path in paths:
        if path.is_dir():
            for found in sorted(path.rglob("*")):
                if found.suffix in ENDINGS and found.is_file():
                    yield found, False
        else:
            yield path, True


def read_entries(path: Path) -> list[Any]:
    """The entries of one file as plain values, without `x-` keys; raises ScenarioError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror or error}") from error
    try:
        if path.suffix == ".jsonl":
            found = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        elif path.suffix == ".json":
            found = [msgspec.json.decode(text)]
        else:
            found = [entry for entry in yaml.load_all(text, _Loader) if entry is not None]
    except (msgspec.DecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        # YAML that looks like a date and is none is a ValueError, text that is no UTF-8 too.
        what = "JSON" if path.suffix in (".json", ".jsonl") else "YAML"
        raise ScenarioError(f"{path}: not {what}: {' '.join(str(error).split())}") from error
    entries = [entry for each in found for entry in (each if isinstance(each, list) else [each])]
    return [_without_notes(entry) for entry in entries] if b"x-" in text else entries


def case_of(entry: object, where: str) -> Case:
    """The case; raises ScenarioError, with `where` before the field that is wrong."""
    try:
        return msgspec.convert(entry, Case)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{where}: {_explain(str(error), entry)}") from error


def _take(loaded: Loaded, path: Path, name: str, entry: object) -> None:
    where = f"{path}: {name}"
    try:
        case = case_of(entry, where)
        for wrong in wrong_amounts(case):
            raise ScenarioError(f"{where}: {wrong}")
    except ScenarioError as error:
        loaded.broken.append(Broken(name, str(error)))
        return
    if case.id in loaded.files:
        why = f"{where}: this id is already used in {loaded.files[case.id]}"
        loaded.broken.append(Broken(name, why))
        return
    loaded.files[case.id] = path
    loaded.cases.append(case)


def _name_of(entry: object, at: int) -> str:
    """The case's id, or its place in the file where it has none."""
    name = entry.get("id") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"case {at + 1}"


def _without_notes(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_notes(inner)
            for key, inner in value.items()
            if not (isinstance(key, str) and key.startswith("x-"))
        }
    return [_without_notes(inner) for inner in value] if isinstance(value, list) else value


def _explain(message: str, entry: object) -> str:
    """msgspec's message, with the place first, and with what is accepted there."""
    found = _AT.fullmatch(message)
    assert found is not None
    what, path = found["what"], found["path"] or ""
    unknown = _UNKNOWN.fullmatch(what)
    kind, place = _follow(path, entry)
    if unknown is not None:
        accepted = ", ".join(field.encode_name for field in _struct(kind).fields)
        what = f"unknown field {json.dumps(unknown['name'])}; accepted: {accepted}"
    elif words := ", ".join(_words(kind)):
        what = f"{what}; accepted: {words}"
    return f"{place}: {what}" if place else what


def _follow(path: str, entry: Any) -> tuple[inspect.Type, str]:
    """The type that belongs at `path` (`.jobs[0]`), and the path with its keys named.

    msgspec writes `[...]` for every key of a mapping; the first whose value is wrong is meant.
    """
    kind = _case_type()
    place = ""
    for step in _STEP.finditer(path):
        name, key = step["name"], step["key"]
        if name is not None:
            kind = next(each.type for each in _struct(kind).fields if each.encode_name == name)
            entry = entry[name]
            place += f".{name}"
            continue
        kind = _item(kind)
        if key == "...":
            key = next((each for each in entry if _is_wrong(entry[each], kind)), next(iter(entry)))
            entry = entry[key]
        else:
            entry = entry[int(key)]
        place += f"[{key}]"
    return kind, place.removeprefix(".")


@functools.cache
def _case_type() -> inspect.Type:
    """What msgspec knows of `Case`. Asking for it takes 9 ms; nobody changes what it answers."""
    return inspect.type_info(Case)


def _is_wrong(value: object, kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.StructType):
        try:
            msgspec.convert(value, kind.cls)
        except msgspec.ValidationError:
            return True
    return False


def _item(kind: inspect.Type) -> inspect.Type:
    """The type of the items of a list, or of the values of a mapping."""
    for each in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(each, inspect.ListType):
            return each.item_type
        if isinstance(each, inspect.DictType):
            return each.value_type
    return kind


def _struct(kind: inspect.Type) -> inspect.StructType:
    for each in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(each, inspect.StructType):
            return each
    raise TypeError(f"no mapping here: {kind}")


def _words(kind: inspect.Type) -> Iterator[str]:
    """The words that are accepted, where only some are."""
    for each in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(each, inspect.LiteralType):
            yield from map(str, each.values)
