"""`ballast scenario` and `ballast bench`: what they print, and how they end."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from extender.cli.bench import bench
from extender.cli.scenario import scenario
from tests.unit.scenario.written import entry, job, node, queue

QUEUES = [queue("a", quota=1), queue("b", quota=0)]
LENT = entry(
    id="lent", nodes=[node(gpus=1)], queues=QUEUES, jobs=[job("old", "b", on="n0"), job("new")]
)


def written(folder: Path, *entries: dict[str, Any]) -> Path:
    path = folder / "cases.json"
    path.write_text(json.dumps(list(entries)))
    return path


def ballast(*args: object) -> Result:
    return CliRunner().invoke(scenario, [str(arg) for arg in args])


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    wrong = LENT | {"id": "wrong", "expect": {"jobs": {"new": {"status": "bound"}}}}
    skipped = entry(id="beyond", tags=["out-of-format"])
    return written(tmp_path, LENT, wrong, skipped, entry(id="bad", nods=[]))


def test_run_ends_with_the_counts_and_fails_when_a_case_does(mixed: Path) -> None:
    done = ballast("run", mixed)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "1 passed, 2 failed, 1 skipped"
    assert "new: expected it bound, got 1 nominated" in done.stdout
    assert 'bad: unknown field "nods"; accepted: scenario, id, nodes' in done.stdout


def test_run_succeeds_when_nothing_failed(tmp_path: Path) -> None:
    done = ballast("run", written(tmp_path, LENT, entry(id="beyond", tags=["out-of-format"])))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"


def test_run_as_json_has_cases_files_and_counts(mixed: Path) -> None:
    told = json.loads(ballast("run", mixed, "--json").stdout)
    assert (told["passed"], told["failed"], told["skipped"]) == (1, 2, 1)
    by_id = {each["id"]: each for each in told["cases"]}
    assert by_id["wrong"]["reasons"] == ["new: expected it bound, got 1 nominated"]
    assert by_id["lent"] == {
        "id": "lent",
        "result": "passed",
        "reasons": [],
        "file": str(mixed),
    }


def test_run_writes_decisions_as_lines(mixed: Path, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    ballast("run", mixed, "--decisions", path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["lent", "wrong"]
    assert lines[0]["tasks"]["old/t"] == {
        "status": "evicted",
        "node": "n0",
        "cards": {"n0/0": 1000},
    }
    assert lines[0]["tookUs"] >= 0


def test_decisions_that_cannot_be_written_are_told_before_any_work(mixed: Path) -> None:
    done = ballast("run", mixed, "--decisions", "/nowhere/decisions.jsonl")
    assert done.exit_code == 2
    assert "'/nowhere/decisions.jsonl': No such file or directory" in done.stderr
    assert not done.stdout


def test_show_tells_one_case_in_sentences(tmp_path: Path) -> None:
    path = written(tmp_path, LENT, LENT | {"id": "other"})
    done = ballast("show", path, "--case", "other")
    assert done.exit_code == 0
    assert "other" in done.stdout
    assert "lent" not in done.stdout
    assert "old/t leaves n0 for new: Reclaimed" in done.stdout
    assert "new/t has its place on n0 with 1 GPU" in done.stdout


def test_show_as_json_has_the_same(tmp_path: Path) -> None:
    told = json.loads(ballast("show", written(tmp_path, LENT), "--json").stdout)
    (cycle,) = told[0]["cycles"]
    assert told[0]["id"] == "lent"
    assert cycle["placed"] == ["new/t has its place on n0 with 1 GPU and waits until it is left."]
    assert cycle["shares"][0]["queue"] == "a"


def test_show_says_what_is_wrong_and_where(mixed: Path, tmp_path: Path) -> None:
    assert "bad: unknown field" in ballast("show", mixed).stderr
    path = written(tmp_path, entry(id="nowhere", jobs=[job(on="n9")]))
    done = ballast("show", path)
    assert done.exit_code == 1
    assert f"{path}: nowhere: j/t: there is no node n9" in done.stderr
    assert "there is no case z" in ballast("show", path, "--case", "z").stderr


def test_bench_times_one_cycle_and_counts_what_it_decided(tmp_path: Path) -> None:
    args = ["cycle", "--shape", str(written(tmp_path, LENT)), "--repeat", "2", "--json"]
    (timing,) = json.loads(CliRunner().invoke(bench, args).stdout)
    assert (timing["n_evicted"], timing["n_nominated"], timing["n_bound"]) == (1, 1, 0)
    assert len(timing["runs_ms"]) == 2
    assert timing["best_ms"] == min(timing["runs_ms"])
    assert timing["peak_rss_mib"] > 1


def test_bench_prints_a_table(tmp_path: Path) -> None:
    done = CliRunner().invoke(bench, ["cycle", "--shape", str(written(tmp_path, LENT))])
    assert done.exit_code == 0
    assert "lent" in done.stdout
