"""JSON Patch operations: escaped, with parents, and none where nothing changes."""

import copy
from typing import Any

import jsonpatch
import pytest

from webhooks.patch import PatchBuilder, pointer


def test_pointer_escapes_tilde_before_slash() -> None:
    assert pointer(("metadata", "labels", "a/b~c~1")) == "/metadata/labels/a~1b~0c~01"


def test_pointer_counts_list_positions() -> None:
    assert pointer(("spec", "containers", 0)) == "/spec/containers/0"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": None},
        {"metadata": {}},
        {"metadata": {"labels": None}},
        {"metadata": {"labels": {}}},
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"labels": {"a/b": "old"}}},
    ],
)
def test_value_is_set_whatever_is_missing_above_it(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    patch = PatchBuilder(document)
    patch.set(("metadata", "labels", "a/b"), "c")
    after = jsonpatch.apply_patch(before, patch.ops)
    assert after["metadata"]["labels"]["a/b"] == "c"
    assert after == patch.document
    assert len(patch.ops) == 1


def test_what_is_already_so_costs_no_operation() -> None:
    patch = PatchBuilder({"a": {"b": "c"}, "l": [1], "n": 1})
    patch.set(("a", "b"), "c")
    patch.append(("l",), 1)
    patch.remove(("a", "absent"))
    patch.remove(("absent", "b"))
    assert patch.ops == []


def test_one_is_not_true() -> None:
    patch = PatchBuilder({"n": 1})
    patch.set(("n",), True)
    assert patch.ops == [{"op": "replace", "path": "/n", "value": True}]


def test_entry_is_added_behind_the_others() -> None:
    patch = PatchBuilder({"spec": {"gates": [{"name": "theirs"}]}})
    patch.append(("spec", "gates"), {"name": "ours"})
    assert patch.ops == [{"op": "add", "path": "/spec/gates/-", "value": {"name": "ours"}}]


@pytest.mark.parametrize("document", [{}, {"spec": {}}, {"spec": {"gates": None}}])
def test_missing_list_is_made(document: dict[str, Any]) -> None:
    patch = PatchBuilder(document)
    patch.append(("spec", "gates"), {"name": "ours"})
    assert patch.document["spec"]["gates"] == [{"name": "ours"}]
    assert len(patch.ops) == 1


def test_member_is_removed() -> None:
    patch = PatchBuilder({"spec": {"priority": 0}})
    patch.remove(("spec", "priority"))
    assert patch.ops == [{"op": "remove", "path": "/spec/priority"}]
    assert patch.document == {"spec": {}}
