"""Whatever the document, our patch does what the builder did, by a library that is not ours."""

import json
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from webhooks.patch import PatchBuilder

keys = st.sampled_from(["a", "b", "a/b", "~", "~1", "", "0", "-"])
values = st.none() | st.integers(0, 2) | st.booleans() | st.text("x/~", max_size=2)
trees: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.builds(dict),
    lambda inner: st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(keys, trees, max_size=3)
paths = st.lists(keys, min_size=1, max_size=4).map(tuple)


@given(document=documents, edits=st.lists(st.tuples(paths, values), max_size=6))
def test_patch_applied_elsewhere_gives_what_was_built(
    document: dict[str, Any], edits: list[tuple[tuple[str, ...], Any]]
) -> None:
    patch = _patch_of(document)
    for path, value in edits:
        if _is_reachable(patch.document, path):
            patch.set(path, value)
    assert jsonpatch.apply_patch(document, patch.ops) == patch.document


@given(document=documents, path=paths, value=values)
def test_setting_twice_is_setting_once(
    document: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    once = _patch_of(document)
    once.set(path, value)
    again = _patch_of(once.document)
    again.set(path, value)
    assert again.ops == []


@given(document=documents, path=paths, value=values)
def test_appending_twice_is_appending_once(
    document: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    patch = _patch_of(document)
    if isinstance(_at(document, path), dict):
        return
    patch.append(path, value)
    patch.append(path, value)
    assert jsonpatch.apply_patch(document, patch.ops) == patch.document
    assert _at(patch.document, path) == [value]


def _patch_of(document: dict[str, Any]) -> PatchBuilder:
    return PatchBuilder(json.dumps(document).encode())


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _is_reachable(document: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether only objects, nulls and nothing stand above the last key."""
    return all(
        _at(document, path[:n]) is None or isinstance(_at(document, path[:n]), dict)
        for n in range(1, len(path))
    )
