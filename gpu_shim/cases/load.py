"""Loads case files; an error is a sentence with file, case and field."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpu_shim.cases.model import CardCase, case_of

ENDINGS: Final = (".yaml", ".yml", ".json")
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?", re.DOTALL)
_AT = re.compile(r"(.*?) - at `\$(.*)`", re.DOTALL)


@dataclass(slots=True, frozen=True)
class BrokenCase:
    """An invalid case or file, with a sentence that names it and says why."""

    id: str
    why: str


@dataclass(slots=True)
class LoadedCases:
    """The cases of some files in their order, and the invalid ones."""

    cases: list[CardCase] = field(default_factory=list)
    broken: list[BrokenCase] = field(default_factory=list)


def load(paths: Iterable[Path]) -> LoadedCases:
    """The cases of files and folders. In a folder, files without such cases are skipped."""
    loaded, known = LoadedCases(), set[str]()
    for path, is_named in _files(paths):
        try:
            entries = _entries(path)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            loaded.broken.append(BrokenCase(str(path), f"{path}: {' '.join(str(error).split())}"))
            continue
        if not is_named and not any(_is_ours(entry) for entry in entries):
            continue
        for at, entry in enumerate(entries):
            _take(loaded, known, path, at, entry)
    return loaded


def _is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and {"lease", "workloads"} <= entry.keys()


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    for path in paths:
        if path.is_dir():
            yield from (
                (found, False)
                for found in sorted(path.rglob("*"))
                if found.suffix in ENDINGS and found.is_file()
            )
        else:
            yield path, True


def _entries(path: Path) -> list[Any]:
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        documents = [json.loads(text, parse_float=str)]
    else:
        documents = [each for each in yaml.load_all(text, _Loader) if each is not None]
    return [entry for each in documents for entry in (each if isinstance(each, list) else [each])]


def _take(loaded: LoadedCases, known: set[str], path: Path, at: int, entry: object) -> None:
    named = entry.get("id") if isinstance(entry, dict) else None
    name = named if isinstance(named, str) and named else f"case {at + 1}"
    try:
        case = case_of(entry)
    except msgspec.ValidationError as error:
        loaded.broken.append(BrokenCase(name, f"{path}: {name}: {_explain(str(error))}"))
        return
    if case.id in known:
        loaded.broken.append(BrokenCase(name, f"{path}: {name}: this id is already used"))
        return
    known.add(case.id)
    loaded.cases.append(case)


def _explain(message: str) -> str:
    """The decoder's message, starting with the field's path."""
    if found := _UNKNOWN.fullmatch(message):
        return f"unknown field {(found[2] or '').lstrip('.') + '.' if found[2] else ''}{found[1]}"
    if found := _AT.fullmatch(message):
        return f"field {found[2].lstrip('.') or 'of the case'}: {found[1]}"
    return message
