"""`ballast scenario` and `ballast bench`: their output and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from extender.__main__ import main
from extender.cli.scenarios.bench import bench
from extender.cli.scenarios.scenario import scenario
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
    told = json.loads(ballast("run", mixed, "-o", "json").stdout)
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


def test_decisions_that_cannot_be_written_are_reported_before_any_work(mixed: Path) -> None:
    done = ballast("run", mixed, "--decisions", "/nowhere/decisions.jsonl")
    assert done.exit_code == 2
    assert "'/nowhere/decisions.jsonl': No such file or directory" in done.stderr
    assert not done.stdout


def test_decisions_never_take_the_place_of_the_cases(mixed: Path) -> None:
    before = mixed.read_text()
    done = ballast("run", mixed, "--decisions", mixed.parent / "." / mixed.name)
    assert done.exit_code == 2
    assert "the cases are in it; accepted: any other file" in done.stderr
    assert mixed.read_text() == before


def test_decisions_and_the_json_of_a_run_do_not_share_standard_output(mixed: Path) -> None:
    done = ballast("run", mixed, "-o", "json", "--decisions", "-")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "both write to standard output" in done.stderr


def test_decisions_on_standard_output_are_followed_by_the_counts(mixed: Path) -> None:
    lines = ballast("run", mixed, "--decisions", "-").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines[:2]] == ["lent", "wrong"]
    assert lines[-1] == "1 passed, 2 failed, 1 skipped"


def test_what_has_no_case_in_it_is_one_that_failed(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    done = ballast("run", written(tmp_path, LENT), empty)
    assert done.exit_code == 1
    assert f"{empty}: there is no case in this file" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_case_that_contradicts_itself_is_reported_with_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, entry(id="nowhere", jobs=[job(on="n9")]))
    assert f"{path}: nowhere: j/t: there is no node n9" in ballast("run", path).stdout


def test_names_can_not_act_on_the_terminal(tmp_path: Path) -> None:
    path = written(tmp_path, LENT | {"id": "a\x1b[31m\nb"})
    for command in ("run", "show"):
        assert "a\\x1b[31m\\nb" in ballast(command, path).stdout


def test_names_that_the_output_can_not_have_are_written_in_ascii(tmp_path: Path) -> None:
    path = written(tmp_path, LENT | {"id": "nötig"})
    for command in ("run", "show"):
        done = CliRunner(charset="ascii").invoke(scenario, [command, str(path)])
        assert done.exit_code == 0
        assert "n\\xf6tig" in done.stdout


def test_field_that_says_nothing_is_noted_beside_the_results(tmp_path: Path) -> None:
    pinned = job(tasks=[{"name": "t", "node": "n0"}])
    path = written(tmp_path, entry(id="pinned", jobs=[pinned]))
    for command in ("run", "show"):
        done = ballast(command, path)
        assert done.exit_code == 0
        assert f"Note: {path}: pinned: jobs[0].tasks[0].node: has no effect" in done.stderr


def test_show_tells_one_case_in_sentences(tmp_path: Path) -> None:
    path = written(tmp_path, LENT, LENT | {"id": "other"})
    done = ballast("show", path, "--case", "other")
    assert done.exit_code == 0
    assert "other" in done.stdout
    assert "lent" not in done.stdout
    assert "old/t is evicted from n0 for new: Reclaimed" in done.stdout
    assert "new/t is nominated to n0 with 1 GPU" in done.stdout


def test_show_as_json_has_the_same(tmp_path: Path) -> None:
    told = json.loads(ballast("show", written(tmp_path, LENT), "-o", "json").stdout)
    (cycle,) = told[0]["cycles"]
    assert told[0]["id"] == "lent"
    assert cycle["placed"] == [
        "new/t is nominated to n0 with 1 GPU and waits until that place is free."
    ]
    assert cycle["shares"][0]["queue"] == "a"


def test_show_says_what_is_wrong_and_where(mixed: Path, tmp_path: Path) -> None:
    assert "bad: unknown field" in ballast("show", mixed).stderr
    path = written(tmp_path, entry(id="nowhere", jobs=[job(on="n9")]))
    done = ballast("show", path)
    assert done.exit_code == 1
    assert f"{path}: nowhere: j/t: there is no node n9" in done.stderr
    told = ballast("show", path, "--case", "z").stderr
    assert told == "Error: there is no case z; there are nowhere\n"


def test_simulate_says_which_cases_there_are(tmp_path: Path) -> None:
    path = written(tmp_path, LENT)
    told = CliRunner().invoke(main, ["simulate", str(path), "--case", "z"]).stderr
    assert told == "Error: there is no case z; there are lent\n"


@pytest.mark.parametrize(("width", "n_tables"), [("80", 2), ("120", 1)])
def test_figures_of_a_simulation_fit_the_terminal(
    width: str, n_tables: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("extender.cli.terminal.show.WIDTH", int(width))
    path = written(tmp_path, LENT)
    lines = CliRunner().invoke(main, ["simulate", "--days", "0.01", str(path)]).stdout.splitlines()
    totals = [line for line in lines if line.startswith("total")]
    assert len(totals) == n_tables
    assert max(map(len, totals)) <= int(width)


def test_what_if_on_a_file_of_several_cases_says_which_it_takes(tmp_path: Path) -> None:
    change = ["--quota", "b=1"]
    path = written(tmp_path, LENT, LENT | {"id": "other"})
    done = CliRunner().invoke(main, ["whatif", "--file", str(path), *change])
    assert done.stderr.startswith(f"Note: {path} has 2 cases; this is lent\n")
    done = CliRunner().invoke(main, ["whatif", "--file", str(written(tmp_path, LENT)), *change])
    assert "Note:" not in done.stderr


def test_show_tells_good_cases_beside_bad_ones(mixed: Path) -> None:
    done = ballast("show", mixed)
    assert done.exit_code == 1
    assert "new/t is nominated to n0 with 1 GPU" in done.stdout
    assert done.stderr.startswith(f"Error: {mixed}: bad: unknown field")
    assert ballast("show", mixed, "--case", "lent").exit_code == 0


def test_show_says_so_of_a_case_that_the_format_cannot_say(mixed: Path) -> None:
    told = ballast("show", mixed, "--case", "beyond").stdout
    assert "It needs something that the format cannot express" in told
    assert "It needs" not in ballast("show", mixed, "--case", "lent").stdout


def test_show_cuts_no_figure_in_a_narrow_terminal(tmp_path: Path) -> None:
    path = written(tmp_path, LENT | {"queues": [queue("a" * 30, quota=1), *QUEUES]})
    done = CliRunner(env={"COLUMNS": "20"}).invoke(scenario, ["show", str(path)])
    assert f"{'a' * 30}  GPU       1" in done.stdout


def test_show_has_a_sentence_for_everybody_who_waits(tmp_path: Path) -> None:
    waits = [job("new"), job("large", gpu=9)]
    for stages, why in (
        ([], "no stage ran, and free places are given by allocate"),
        (["consolidate"], "free places are given by stage allocate, which is left out"),
        (["stale-gangs", "reclaim"], "only stale-gangs and reclaim ran, and free places are"),
    ):
        of = entry(settings={"stages": stages, "preemption": False}, jobs=waits, queues=QUEUES)
        (told,) = json.loads(ballast("show", written(tmp_path, of), "-o", "json").stdout)
        waiting = told["cycles"][0]["waiting"]
        assert sorted(line.split()[0] for line in waiting) == ["large", "new"]
        assert why in str(waiting)
        assert "the largest node has 8" in str(waiting)


def test_show_tells_memory_in_mib_however_small_the_unit_of_the_case(tmp_path: Path) -> None:
    queues = [queue("a", quota=8, memory={"limit": "10G"})]
    path = written(tmp_path, entry(queues=queues, jobs=[job(memory="12G")]))
    assert "needs 11444 MiB of memory, a has 0 MiB" in ballast("show", path).stdout


def test_bench_times_one_cycle_and_counts_what_it_decided(tmp_path: Path) -> None:
    args = ["cycle", "--shape", str(written(tmp_path, LENT)), "--repeat", "2", "-o", "json"]
    (timing,) = json.loads(CliRunner().invoke(bench, args).stdout)
    assert (timing["n_evicted"], timing["n_nominated"], timing["n_bound"]) == (1, 1, 0)
    assert len(timing["runs_ms"]) == 2
    assert timing["best_ms"] == min(timing["runs_ms"])
    assert timing["peak_rss_mib"] > 1


def test_tables_in_a_pipe_have_no_blanks_at_their_ends(tmp_path: Path) -> None:
    path = written(tmp_path, LENT)
    for words in (
        ["scenario", "show"],
        ["simulate", "--days", "0.01"],
        ["bench", "cycle", "--repeat", "1", "--shape"],
    ):
        lines = CliRunner().invoke(main, [*words, str(path)]).stdout.splitlines()
        assert lines
        assert all(line == line.rstrip() for line in lines), words


def test_bench_prints_a_table(tmp_path: Path) -> None:
    done = CliRunner().invoke(bench, ["cycle", "--shape", str(written(tmp_path, LENT))])
    assert done.exit_code == 0
    assert "lent" in done.stdout
