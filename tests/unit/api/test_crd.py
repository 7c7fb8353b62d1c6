"""The committed CRDs are as generated, and the generated ones are structural."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api import crd, kinds, units
from extender.api.schema import schema

PARTS = ("spec", "status")
ROOT = Path(__file__).parents[3]


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema at or below this one."""
    yield node
    for child in node.get("properties", {}).values():
        yield from _schemas(child)
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from _schemas(node[key])


def all_schemas() -> list[dict[str, Any]]:
    bodies = [schema(definition.kind)["properties"] for definition in crd.DEFINITIONS]
    parts = [body[key] for body in bodies for key in PARTS if key in body]
    return [each for part in parts for each in _schemas(part)]


def test_committed_crds_are_what_the_generator_makes() -> None:
    assert crd.differences(ROOT / crd.CRD_FOLDER) == []


def test_every_kind_has_a_definition() -> None:
    assert tuple(d.kind for d in crd.DEFINITIONS) == kinds.KINDS


def test_every_node_has_a_type_and_no_reference() -> None:
    for node in all_schemas():
        assert "$ref" not in node
        assert ("type" in node) != ("x-kubernetes-preserve-unknown-fields" in node), node


def _spec(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = schema(kind)["properties"]["spec"]
    return found


def test_nothing_is_null() -> None:
    assert not [node for node in all_schemas() if "nullable" in node]


def test_every_field_is_described() -> None:
    for definition in crd.DEFINITIONS:
        properties = schema(definition.kind)["properties"]
        for part in PARTS:
            for node in _schemas(properties.get(part, {})):
                for field, child in node.get("properties", {}).items():
                    text = child.get("description", "")
                    where = (definition.plural, part, field)
                    assert text, where
                    assert not text.startswith("Defaults to"), where


def test_what_people_write_has_the_defaults_of_the_structs() -> None:
    pool = _spec(kinds.GpuNodePool)
    assert pool["default"] == {}
    assert pool["properties"]["policy"]["default"] == "FairShare"
    slicing = pool["properties"]["timeSlicing"]
    assert slicing["default"] == {}
    assert slicing["properties"]["leaseMilliseconds"]["default"] == 250
    group = _spec(kinds.GpuPodGroup)["properties"]
    assert (group["minMember"]["default"], group["stalenessGraceSeconds"]["default"]) == (1, 60)
    assert "default" not in group["topologyConstraint"]
    assert "default" not in group["project"]


def test_cpu_that_nobody_counts_is_not_made_for_its_defaults() -> None:
    figures = _spec(kinds.GpuDepartment)["properties"]["nodePools"]["items"]["properties"]
    assert figures["gpu"]["default"] == {}
    assert "default" not in figures["cpu"]
    assert "default" not in figures["memory"]


def test_what_programs_write_has_no_defaults() -> None:
    written = [_spec(kinds.GpuNode)] + [
        schema(definition.kind)["properties"]["status"]
        for definition in crd.DEFINITIONS
        if "status" in schema(definition.kind)["properties"]
    ]
    for part in written:
        assert not [node for node in _schemas(part) if "default" in node]


def test_every_list_and_text_and_map_is_bounded() -> None:
    for node in all_schemas():
        match node.get("type"):
            case "array":
                assert node["maxItems"] > 0
                is_figures = node["items"]["type"] == "integer"
                allowed = ("atomic",) if is_figures else ("map", "set")
                assert node["x-kubernetes-list-type"] in allowed
            case "string":
                assert "enum" in node or node["maxLength"] > 0
            case "object" if "additionalProperties" in node:
                assert node["maxProperties"] > 0


def test_list_keys_are_required_fields_of_their_entries() -> None:
    for node in all_schemas():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"]


def test_policy_of_figures_has_the_patterns_of_the_programs() -> None:
    policy = (ROOT / "manifests/base/policies/figures.yaml").read_text()
    for pattern in (units.GPUS_PATTERN, units.QUANTITY_PATTERN):
        assert f"matches(r'^{pattern}$')" in policy


def test_only_projects_and_usage_records_must_have_a_spec() -> None:
    required = {d.kind.__name__: schema(d.kind).get("required") for d in crd.DEFINITIONS}
    stated = ("GpuProject", "GpuUsage")
    assert required == {name: ["spec"] if name in stated else None for name in required}


@pytest.mark.parametrize("definition", crd.DEFINITIONS, ids=lambda d: d.plural)
def test_age_is_the_last_column_and_few_are_shown_by_default(
    definition: crd.Definition,
) -> None:
    assert definition.columns[-1].name == "Age"
    assert sum(not column.is_wide for column in definition.columns) <= 9


def test_every_kind_is_described() -> None:
    for definition in crd.DEFINITIONS:
        assert schema(definition.kind)["description"]


def test_writing_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    assert len(crd.write(tmp_path)) == len(crd.DEFINITIONS) + 1
    assert crd.write(tmp_path) == []


def test_check_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crd.write(tmp_path)
    (tmp_path / "projects.yaml").write_text("edited", "utf-8")
    (tmp_path / "surplus.yaml").write_text("", "utf-8")
    assert crd.main(["--check", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "projects.yaml" in said
    assert "surplus.yaml" in said
    assert crd.main(["--write", "--folder", str(tmp_path)]) == 0
    assert crd.main(["--check", "--folder", str(tmp_path)]) == 0
    assert not (tmp_path / "surplus.yaml").exists()


def test_files_are_plain_yaml_with_a_header_that_says_where_they_come_from() -> None:
    for text in crd.rendered().values():
        assert text.startswith("# Generated by `python -m extender.api.crd --write`")
        assert "&id" not in text
        assert yaml.safe_load(text)["kind"] in ("CustomResourceDefinition", "Kustomization")
