"""JSON Patch operations: escaped, with parents, and none without a change."""

import json
from typing import Any

import jsonpatch
import pytest

from webhooks.patch import PatchBuilder


def patch_of(document: dict[str, Any]) -> PatchBuilder:
    return PatchBuilder(json.dumps(document).encode())


def test_tilde_is_escaped_before_slash() -> None:
    patch = patch_of({"metadata": {}})
    patch.set(("metadata", "a/b~c~1"), "x")
    assert patch.ops == [{"op": "add", "path": "/metadata/a~1b~0c~01", "value": "x"}]


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
    patch = patch_of(document)
    patch.set(("metadata", "labels", "a/b"), "c")
    after = jsonpatch.apply_patch(document, patch.ops)
    assert after["metadata"]["labels"]["a/b"] == "c"
    assert after == patch.document
    assert len(patch.ops) == 1


def test_what_is_already_so_costs_no_operation() -> None:
    patch = patch_of({"a": {"b": "c"}, "l": [1], "n": 1})
    patch.set(("a", "b"), "c")
    patch.append(("l",), 1)
    patch.remove(("a", "absent"))
    patch.remove(("absent", "b"))
    assert patch.ops == []


def test_one_is_not_true() -> None:
    patch = patch_of({"n": 1})
    patch.set(("n",), True)
    assert patch.ops == [{"op": "add", "path": "/n", "value": True}]


def test_entry_is_added_behind_the_others() -> None:
    patch = patch_of({"spec": {"gates": [{"name": "theirs"}]}})
    patch.append(("spec", "gates"), {"name": "ours"})
    gates = [{"name": "theirs"}, {"name": "ours"}]
    assert patch.ops == [{"op": "add", "path": "/spec/gates", "value": gates}]


def test_changes_of_one_member_are_one_operation_and_others_are_not_touched() -> None:
    containers = [{"name": "main"}, {"name": "other", "env": [{"name": "A"}]}]
    patch = patch_of({"metadata": {"name": "p"}, "spec": {"containers": containers, "n": 1}})
    patch.set(("spec", "containers", 0, "resources", "requests", "cpu"), "1")
    patch.append(("spec", "containers", 1, "env"), {"name": "B"})
    (operation,) = patch.ops
    assert operation["path"] == "/spec/containers"
    assert operation["value"] == [
        {"name": "main", "resources": {"requests": {"cpu": "1"}}},
        {"name": "other", "env": [{"name": "A"}, {"name": "B"}]},
    ]


def test_what_was_added_and_taken_away_again_costs_no_operation() -> None:
    patch = patch_of({"spec": {}})
    patch.set(("spec", "priority"), 5)
    patch.remove(("spec", "priority"))
    assert patch.ops == []


@pytest.mark.parametrize("document", [{}, {"spec": {}}, {"spec": {"gates": None}}])
def test_missing_list_is_made(document: dict[str, Any]) -> None:
    patch = patch_of(document)
    patch.append(("spec", "gates"), {"name": "ours"})
    assert patch.document["spec"]["gates"] == [{"name": "ours"}]
    assert len(patch.ops) == 1


def test_member_is_removed() -> None:
    patch = patch_of({"spec": {"priority": 0}})
    patch.remove(("spec", "priority"))
    assert patch.ops == [{"op": "remove", "path": "/spec/priority"}]
    assert patch.document == {"spec": {}}
