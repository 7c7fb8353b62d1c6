"""docs/reference/scenario.md: all fields of a scenario file, from the model that reads it."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from extender.scenario.model.case import Case
from tests.tools.reference.scenario_texts import TEXTS

INTRO = """# The scenario file

A cluster, its queues and workloads, and what must come out, as YAML or JSON: what `ballast
scenario`, `ballast simulate` and `ballast whatif --file` read, `ballast snapshot` writes, and a
report of a wrong decision attaches. A file holds one case or a list of cases. An unknown field is
an error that names it and says what is accepted; what is left out has its default; what an
expectation leaves out is not asserted.

GPUs are numbers exact to 0.001, CPU and memory are Kubernetes quantities, memory of cards is in
MiB, times are in seconds, and `null` is unlimited where a quota or limit is meant. A number of GPUs
is below 1,000,000, the CPU of a node or task at most 1,000,000 and its memory 1Pi, an age at most
10^9 s, and a weight below 2^63 with six decimals; a larger figure is an error that says what is
accepted. A worked file is `examples/shares.yaml` ([fair share](../fair-share.md)).

Without `rounds` the expectation is read in the one cycle there is, before what it decided settles.
To settle means: what is bound runs, what is nominated waits and keeps its place, and what is
evicted waits again (or is gone, where `deleted` says so). `steps` run further cycles, each after a
settling.
"""


class StaleTextsError(Exception):
    """The texts and the model differ."""


def page() -> str:
    """The page's text; raises StaleTextsError if a field has no text, or a text no field."""
    kinds = list(_kinds(Case, []))
    names = {kind.__name__ for kind in kinds}
    if superfluous := sorted(TEXTS.keys() - names):
        raise StaleTextsError(
            f"scenario_texts.py describes what is not in the model: {superfluous}"
        )
    return INTRO + "".join(_section(kind) for kind in kinds)


def _kinds(kind: type[msgspec.Struct], seen: list[type]) -> Iterator[type[msgspec.Struct]]:
    """The Structs of a file, each once, parents first."""
    if kind in seen:
        return
    seen.append(kind)
    yield kind
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    for field in found.fields:
        for part in _parts(field.type):
            yield from _kinds(part, seen)


def _parts(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, inspect.StructType):
        yield kind.cls
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _parts(each)
    elif isinstance(kind, inspect.ListType):
        yield from _parts(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        yield from _parts(kind.value_type)


def _section(kind: type[msgspec.Struct]) -> str:
    texts = dict(TEXTS.get(kind.__name__, {}))
    rows = []
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in texts:
            raise StaleTextsError(f"scenario_texts.py lacks {kind.__name__}.{field.encode_name}")
        text = texts.pop(field.encode_name)
        rows.append(f"| `{field.encode_name}` | {_default(field)} | {text} |")
    if texts:
        raise StaleTextsError(f"scenario_texts.py: {kind.__name__} has no {', '.join(texts)}")
    doc = " ".join((kind.__doc__ or "").split())
    head = f"\n## {kind.__name__}\n\n{doc}\n\n| field | default | meaning |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if value is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is msgspec.UNSET:
        return ""
    text = json.dumps(msgspec.to_builtins(value))
    return "" if text in ("{}", "[]", '""') or isinstance(value, msgspec.Struct) else f"`{text}`"
