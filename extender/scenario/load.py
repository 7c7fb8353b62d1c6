"""Loads scenario files; an error is a sentence with file, case and field.

A file holds one case, a list of them, or (`.jsonl`) one on each line; a YAML file may hold several
documents. In a folder, files without an entry with `scenario` are skipped. A file or folder without
a case is an error if it was named.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from extender.scenario.checks import wrong_amounts
from extender.scenario.decode_errors import explain
from extender.scenario.entries import Entry, read_entries
from extender.scenario.errors import ScenarioError
from extender.scenario.faults import faults_of
from extender.scenario.model.case import Case
from extender.scenario.warnings import warnings_on

ENDINGS: Final = (".yaml", ".yml", ".json", ".jsonl")
#: The error for a file with manifests of Kubernetes, by their kinds.
_NO_SCENARIOS: Final = (
    "these are Kubernetes objects (%s), not scenarios. `kubectl create --dry-run=server -f` shows"
    " whether Ballast accepts them, `kubectl ballast whatif --job PROJECT=PODSxGPUS` whether such"
    " work would start, and `ballast convert` converts those of other schedulers. `kubectl ballast"
    " snapshot` writes a cluster as a scenario"
)


@dataclass(slots=True, frozen=True)
class Broken:
    """An invalid case or file, and why."""

    id: str
    why: str


@dataclass(slots=True)
class Loaded:
    """All cases of some files, in their order, and the invalid ones.

    `files` has the file of each case, by its id. `notes` are warnings about valid but suspicious
    fields.
    """

    cases: list[Case] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def load(paths: Iterable[Path]) -> Loaded:
    """The cases of files and folders. Ids must be unique over all of them."""
    loaded = Loaded()
    for path in paths:
        n_before = len(loaded.cases) + len(loaded.broken)
        for file in _files_in(path):
            _take_file(loaded, file, is_named=file == path)
        if len(loaded.cases) + len(loaded.broken) == n_before:
            what = "folder" if path.is_dir() else "file"
            loaded.broken.append(Broken(str(path), f"{path}: there is no case in this {what}"))
    return loaded


def case_of(entry: object, where: str) -> Case:
    """The case; raises ScenarioError, with `where` before the invalid field."""
    try:
        return msgspec.convert(entry, Case)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{where}: {explain(str(error), entry)}") from error
    except RecursionError:
        raise ScenarioError(f"{where}: it is nested too deeply") from None


def _files_in(path: Path) -> Iterator[Path]:
    """The file itself, or those of the folder in order of their names."""
    if not path.is_dir():
        yield path
        return
    for found in sorted(path.rglob("*")):
        if found.suffix in ENDINGS and found.is_file():
            yield found


def _take_file(loaded: Loaded, path: Path, *, is_named: bool) -> None:
    try:
        entries = read_entries(path)
    except ScenarioError as error:
        loaded.broken.append(Broken(str(path), str(error)))
        return
    if is_named or any(map(_may_be_case, entries)):
        kinds = {kind: None for entry in entries if (kind := _kind_of_manifest(entry))}
        if kinds:
            loaded.broken.append(Broken(str(path), f"{path}: {_NO_SCENARIOS % ', '.join(kinds)}"))
        for entry in entries:
            if not _kind_of_manifest(entry):
                _take(loaded, path, entry)


def _kind_of_manifest(entry: Entry) -> str:
    """The kind if the entry is an object of Kubernetes; else empty."""
    value = entry.value
    is_manifest = isinstance(value, dict) and "apiVersion" in value and "scenario" not in value
    return str(value.get("kind", "")) if is_manifest else ""


def _take(loaded: Loaded, path: Path, entry: Entry) -> None:
    name = _name_of(entry)
    where = f"{path}: {name}"
    try:
        if entry.wrong:
            raise ScenarioError(f"{where}: {entry.wrong}")
        case = case_of(entry.value, where)
        for wrong in chain(wrong_amounts(case), faults_of(case)):
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
    loaded.notes += (f"{where}: {note}" for note in warnings_on(case))


def _may_be_case(entry: Entry) -> bool:
    """Whether the entry has the key `scenario`, or could not be read."""
    value = entry.value
    return "scenario" in value if isinstance(value, dict) else value is None


def _name_of(entry: Entry) -> str:
    """The case's id, or its place in the file if it has none."""
    name = entry.value.get("id") if isinstance(entry.value, dict) else None
    return name if isinstance(name, str) and name else entry.place
