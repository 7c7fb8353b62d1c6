"""Explains an invalid entry: msgspec's message with its place and the accepted values."""

import datetime
import functools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from extender.scenario.model.case import Case

_AT: Final = re.compile(r"(?P<what>.*?)(?: - at (?P<in>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<name>\w+)|\[(?P<key>[^\]]*)\]")
_PLAIN: Final = {inspect.IntType: int, inspect.StrType: str, inspect.ListType: list}
#: Longest part of a wrong value that a message repeats.
_MOST_SHOWN: Final = 40


def explain(message: str, entry: object) -> str:
    """The error in the entry, from msgspec's message."""
    if not isinstance(entry, dict):
        return f"a case is a mapping that has `scenario: v1`, this is {_shown(entry)}"
    found = _AT.fullmatch(message)
    assert found is not None
    what, path = found["what"], found["path"] or ""
    unknown = _UNKNOWN.fullmatch(what)
    kind, place, value = _follow(path, entry)
    if found["in"]:
        return f"{place}: a key: {_of_key(what, kind)}".removeprefix(": ")
    if unknown is not None:
        accepted = ", ".join(field.encode_name for field in _struct(kind).fields)
        what = f"unknown field {json.dumps(unknown['name'])}; accepted: {accepted}"
    elif words := ", ".join(_words(kind)):
        what = f"{what}; accepted: {words}"
    elif accepted := _accepted(kind, value):
        what = f"{_shown(value)} is not accepted; accepted: {accepted}"
    return f"{place}: {what}" if place else what


def _of_key(what: str, kind: inspect.Type) -> str:
    """The error in a key of the mapping."""
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    keys = (each.key_type for each in types if isinstance(each, inspect.DictType))
    words = ", ".join(word for key in keys for word in _words(key))
    return f"{what}; accepted: {words or 'text; put it in quotes'}"


def _shown(value: object) -> str:
    """The value as it is written, shortened if it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _follow(path: str, entry: Any) -> tuple[inspect.Type, str, Any]:
    """The type at `path` (`.jobs[0]`), the path with its keys named, and the value.

    msgspec writes `[...]` for every key of a mapping; the first with an invalid value is meant.
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
    return kind, place.removeprefix("."), entry


@functools.cache
def _case_type() -> inspect.Type:
    """msgspec's type information of `Case`; it takes 9 ms, and never changes."""
    return inspect.type_info(Case)


def _is_wrong(value: object, kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.StructType):
        try:
            msgspec.convert(value, kind.cls)
        except msgspec.ValidationError:
            return True
    if isinstance(kind, inspect.IntType) and isinstance(value, int):
        least, most = kind.ge or 0, value if kind.le is None else kind.le
        return not least <= value <= most
    expected = _PLAIN.get(type(kind))
    return expected is not None and not isinstance(value, expected)


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
    """The accepted words, if the type lists them."""
    for each in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(each, inspect.LiteralType):
            yield from map(str, each.values)


def _shape(each: inspect.Type, value: object) -> str:
    """The accepted shape instead of the value: a mapping, a list, or true and false; else empty."""
    if isinstance(each, inspect.StructType) and not isinstance(value, dict):
        return f"a mapping with {', '.join(field.encode_name for field in each.fields)}"
    if isinstance(each, inspect.DictType) and not isinstance(value, dict):
        return "a mapping"
    if isinstance(each, inspect.ListType):
        n = each.max_length
        return "a list" if not n and not isinstance(value, list) else f"a list of {n}" if n else ""
    is_switch = isinstance(each, inspect.BoolType) and not isinstance(value, bool)
    return "true and false" if is_switch else ""


def _numbers(types: Sequence[inspect.Type]) -> str:
    """The accepted numbers; empty if there are none."""
    numbers = [t for t in types if isinstance(t, inspect.IntType | inspect.FloatType)]
    if not numbers:
        return ""
    is_whole = all(isinstance(each, inspect.IntType) for each in numbers)
    word = "whole numbers" if is_whole else "numbers"
    least, above, most = numbers[0].ge, numbers[0].gt, numbers[0].le
    if most is None:
        return word
    return (
        f"{word} above {above:,} to {most:,}"
        if least is None
        else f"{word} from {least:,} to {most:,}"
    )


def _accepted(kind: inspect.Type, value: object) -> str:
    """The accepted shape, numbers or texts if they are limited; else empty."""
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    numbers = _numbers(types)
    is_amount = numbers and any(isinstance(each, inspect.StrType) for each in types)
    found = [numbers, *(_shape(each, value) for each in types)]
    if in_words := ", or ".join(each for each in found if each and not is_amount):
        return in_words
    texts = [each for each in types if isinstance(each, inspect.StrType)]
    if not texts or numbers:
        return ""
    if isinstance(value, bool | int | float | datetime.date):
        return "text; put it in quotes"
    return "text that is not empty" if value == "" and texts[0].min_length else ""
