"""A scenario file as plain values for JSON and YAML."""

from collections.abc import Mapping
from typing import Any

import msgspec


def without_defaults(struct: msgspec.Struct) -> Any:
    """The struct as plain values, without defaults, for readability."""
    found: dict[str, Any] = {}
    for each in msgspec.structs.fields(struct):
        value = getattr(struct, each.name)
        usual = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            usual = each.default_factory()
        if value != usual:
            found[each.encode_name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return without_defaults(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
