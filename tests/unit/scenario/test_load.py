"""Reading files: valid ones, and messages for invalid ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from extender.scenario.errors import ScenarioError
from extender.scenario.load import case_of, load
from tests.unit.scenario.written import entry, job, queue


def why(**more: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        case_of(entry(**more), "file.yaml: x")
    return str(error.value)


def only_reason(path: Path) -> str:
    loaded = load([path])
    assert not loaded.cases
    (broken,) = loaded.broken
    return broken.why


def test_unknown_field_is_named_with_file_case_and_what_is_accepted() -> None:
    told = why(jobs=[job() | {"priorty": 3}])
    assert told.startswith('file.yaml: x: jobs[0]: unknown field "priorty"; accepted: name, tasks')
    assert "runningFor" in told


def test_manifest_of_kubernetes_is_no_scenario_and_the_message_says_what_takes_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(
        "{apiVersion: batch/v1, kind: Job}\n---\n{apiVersion: v1, kind: Pod}\n---\n"
        "{apiVersion: v1, kind: Pod}\n"
    )
    assert only_reason(path) == (
        f"{path}: these are Kubernetes objects (Job, Pod), not scenarios. `kubectl create"
        " --dry-run=server -f` shows whether Ballast accepts them, `kubectl ballast whatif --job"
        " PROJECT=PODSxGPUS` whether such work would start, and `ballast convert` converts those"
        " of other schedulers. `kubectl ballast snapshot` writes a cluster as a scenario"
    )


def test_unknown_field_below_a_named_entry_says_which() -> None:
    pools = {"a100": {"gpu": {"quota": 1}}, "h100": {"gpu": {"qouta": 1}}}
    told = why(queues=[queue(pools=pools)])
    assert told == (
        'file.yaml: x: queues[0].pools[h100].gpu: unknown field "qouta";'
        " accepted: quota, limit, weight, gpuHoursPerMonth, gpuHoursUsed"
    )


def test_unknown_field_in_a_group_inside_a_group_is_named() -> None:
    inner = {"name": "b", "minimum": 2}
    told = why(jobs=[job(group={"children": [{"name": "a", "children": [inner]}]})])
    assert "jobs[0].group.children[0].children[0]: unknown field" in told


def test_wrong_word_is_answered_with_the_right_ones() -> None:
    told = why(expect={"jobs": {"j": {"status": "started"}}})
    assert told.endswith("accepted: bound, evicted, nominated, pending, running")
    assert "expect.jobs[j].status" in told


def test_wrong_version_and_missing_fields_are_reported() -> None:
    assert why(scenario="v2").endswith("accepted: v1")
    with pytest.raises(ScenarioError, match="missing required field `nodes`"):
        case_of({"scenario": "v1", "id": "x"}, "f: x")


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"nodes": [{"name": "n", "cpu": "8 cores"}]}, "nodes[0].cpu"),
        ({"jobs": [job(memory="1 GB")]}, "jobs[0].tasks[0].memory"),
        ({"jobs": [job(gpu="0.12345")]}, "jobs[0].tasks[0].gpu"),
        ({"queues": [queue(quota="-1")]}, "queues[0].gpu.quota"),
        ({"queues": [queue(weight="much")]}, "queues[0].gpu.weight"),
        ({"queues": [queue(weight=2**63)]}, "queues[0].gpu.weight"),
        (
            {"queues": [{"name": "a", "gpu": {"gpuHoursPerMonth": 9, "gpuHoursUsed": "0x9"}}]},
            "queues[0].gpu.gpuHoursUsed",
        ),
        ({"expect": {"fairShare": {"a": {"cpu": "x"}}}}, "expect.fairShare[a].cpu"),
        ({"steps": [{"add": [job(cpu="?")]}]}, "steps[0].add[0].tasks[0].cpu"),
        ({"settings": {"usageWeight": "x"}}, "settings.usageWeight"),
    ],
)
def test_wrong_amount_is_named_with_its_place(
    more: dict[str, Any], place: str, tmp_path: Path
) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps(entry(**more)))
    assert only_reason(path).startswith(f"{path}: x: {place}: ")


def test_notes_are_dropped_at_every_level(tmp_path: Path) -> None:
    written = entry(jobs=[job(group={"min": 1, "x-why": 2}) | {"x-note": "n"}])
    path = tmp_path / "f.json"
    path.write_text(json.dumps(written | {"x-kai": {"claims": []}}))
    loaded = load([path])
    assert [case.id for case in loaded.cases] == ["x"]


def test_file_holds_a_case_a_list_lines_or_documents(tmp_path: Path) -> None:
    def numbered(n: int) -> dict[str, Any]:
        return entry(id=f"case-{n}")

    (tmp_path / "a.json").write_text(json.dumps(numbered(1)))
    (tmp_path / "b.json").write_text(json.dumps([numbered(2), numbered(3)]))
    (tmp_path / "c.jsonl").write_text(f"{json.dumps(numbered(4))}\n\n{json.dumps(numbered(5))}\n")
    (tmp_path / "d.yaml").write_text(f"---\n{json.dumps(numbered(6))}\n---\n[]\n")
    (tmp_path / "README.md").write_text("not a case")
    loaded = load([tmp_path])
    assert [case.id for case in loaded.cases] == [f"case-{n}" for n in range(1, 7)]
    assert not loaded.broken
    assert loaded.files["case-4"] == tmp_path / "c.jsonl"


def test_id_is_unique_over_all_files(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(entry()))
    loaded = load([tmp_path])
    assert len(loaded.cases) == 1
    assert loaded.broken[0].why == (
        f"{tmp_path / 'b.json'}: x: this id is already used in {tmp_path / 'a.json'}"
    )


def test_other_yaml_in_a_folder_is_passed_over_but_not_when_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("- {id: time/slices, mode: strict}\n")
    (tmp_path / "case.json").write_text(json.dumps(entry()))
    assert load([tmp_path]).broken == []
    assert "time/slices" in only_reason(path)


def test_file_that_is_no_yaml_or_json_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: [1\nb: 2")
    assert only_reason(path) == (
        f"{path}: not YAML: while parsing a flow sequence in line 1, column 4, did not find"
        " expected ',' or ']' in line 2, column 2"
    )
    path = tmp_path / "f.json"
    path.write_text('{"id": "x",\n "nodes": }')
    assert only_reason(path) == (
        f"{path}: not JSON: JSON is malformed: invalid character in line 2, column 11"
    )


def test_line_that_is_no_json_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(f'{json.dumps(entry(id="a"))}\n\n{{"id": \n{json.dumps(entry(id="b"))}\n')
    loaded = load([path])
    assert [case.id for case in loaded.cases] == ["a", "b"]
    (broken,) = loaded.broken
    assert broken.id == "line 3"
    assert broken.why == f"{path}: line 3: not JSON: Input data was truncated"


def test_mark_of_byte_order_is_passed_over(tmp_path: Path) -> None:
    for name in ("f.json", "f.jsonl", "f.yaml"):
        path = tmp_path / name
        path.write_text(json.dumps(entry()), encoding="utf-8-sig")
        assert [case.id for case in load([path]).cases] == ["x"]


def test_key_given_twice_fails_its_case_alone(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        "- {scenario: v1, id: a, nodes: []}\n"
        "- scenario: v1\n  id: b\n  nodes:\n  - name: n\n    gpus: 1\n    gpus: 2\n"
    )
    loaded = load([path])
    assert [case.id for case in loaded.cases] == ["a"]
    (broken,) = loaded.broken
    assert broken.why == (
        f'{path}: b: line 7: "gpus" is given twice in one mapping, first in line 6'
    )


def test_key_given_twice_in_json_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"scenario": "v1", "id": "x", "nodes": [{"name": "n", "gpus": 1, "gpus": 2}]}')
    assert only_reason(path) == f'{path}: x: nodes[0]: "gpus" is given twice'


def test_key_may_stand_for_one_that_was_merged(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        "scenario: v1\nid: x\nnodes:\n- &small {name: a, gpus: 1}\n- {<<: *small, name: b}\n"
    )
    loaded = load([path])
    assert not loaded.broken
    assert [(node.name, node.gpus) for node in loaded.cases[0].nodes] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.yaml", "[" * 100_000),
        ("f.yaml", "- " * 100_000),
        ("f.json", "[" * 100_000 + "]" * 100_000),
        ("f.jsonl", "[" * 100_000 + "]" * 100_000),
        ("f.yaml", "source: &a {more: *a}\nx-note: *a\n"),
    ],
)
def test_text_without_a_bottom_is_reported(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert only_reason(path).endswith("it is nested too deeply")


@pytest.mark.parametrize("name", ["f.yaml", "f.json", "f.jsonl", "folder"])
def test_what_has_no_case_in_it_is_reported(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    else:
        path.write_text("\n")
    what = "folder" if name == "folder" else "file"
    assert only_reason(path) == f"{path}: there is no case in this {what}"


def test_missing_file_is_reported() -> None:
    assert "No such file" in only_reason(Path("/nowhere/f.yaml"))


def test_one_wrong_case_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps([entry(id="bad", nodez=[]), entry(id="good")]))
    loaded = load([path])
    assert [case.id for case in loaded.cases] == ["good"]
    assert [broken.id for broken in loaded.broken] == ["bad"]


def test_entry_that_is_no_mapping_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text("[3]")
    assert "case 1" in only_reason(path)
