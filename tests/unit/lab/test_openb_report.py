"""Reports of openb replays: figures beside the published ones, JSON, the command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from extender.lab.commands import replay
from extender.lab.openb.replay import Run
from extender.lab.openb.report import Summary, as_json, overall, summarise
from tests.unit.lab import openb_folder as given

LAST = 130


def run(policy: str, seed: int, percent: float, trace: str = "x") -> Run:
    return Run(trace, policy, seed, [percent] * (LAST + 1), 10, 9, 0.5)


def curve(percent: float) -> list[float]:
    return [percent] * (LAST + 1)


def only(summaries: list[Summary]) -> Summary:
    assert len(summaries) == 1
    return summaries[0]


def test_seeds_are_compared_with_the_same_published_seeds() -> None:
    published = {("x", "fgd"): {1: curve(90), 2: curve(92), 3: curve(99)}}
    figure = only(summarise([run("fgd", 1, 91), run("fgd", 2, 93)], published)).figures[0]
    assert (figure.mean, figure.reference, figure.difference) == (92, 91, 1)
    assert figure.sd == pytest.approx(2**0.5)


def test_other_seeds_are_compared_with_all_published_ones() -> None:
    published = {("x", "fgd"): {1: curve(90), 2: curve(92)}}
    figure = only(summarise([run("fgd", 7, 91)], published)).figures[0]
    assert (figure.reference, figure.sd) == (91, None)


def test_our_policy_is_compared_with_the_published_fgd() -> None:
    summary = only(summarise([run("frag", 1, 91)], {("x", "fgd"): {1: curve(90)}}))
    assert summary.reference == "fgd"
    assert summary.figures[1].difference == 1


def test_trace_without_published_results_has_no_difference() -> None:
    assert only(summarise([run("fgd", 1, 91)], {})).figures[0].difference is None


def test_mean_over_traces_is_given_where_there_are_several() -> None:
    runs = [run("fgd", 1, 90, "x"), run("fgd", 1, 94, "y")]
    published = {("x", "fgd"): {1: curve(90)}, ("y", "fgd"): {1: curve(91)}}
    mean = only(overall(summarise(runs, published)))
    assert (mean.trace, mean.figures[0].mean, mean.figures[0].difference) == ("mean of 2", 92, 1.5)
    assert overall(summarise(runs[:1], published)) == []


def test_json_has_every_curve(tmp_path: Path) -> None:
    runs = [run("fgd", 1, 90), run("frag", 1, 91)]
    told = json.loads(json.dumps(as_json(runs, summarise(runs, {}))))
    assert [(each["policy"], each["seed"], len(each["curve"])) for each in told["runs"]] == [
        ("fgd", 1, 131),
        ("frag", 1, 131),
    ]
    assert told["summary"][0]["at"][1] == {
        "at": 130,
        "mean": 90,
        "sd": None,
        "reference": None,
        "difference": None,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    given.nodes(tmp_path, ("n1", 96000, 393216, 4, "T4"), ("n2", 96000, 393216, 4, "T4"))
    given.pods(tmp_path, "x", *[(4000, 1, 1000, "")] * 8)
    return tmp_path


def ask(*words: object) -> Result:
    return CliRunner().invoke(replay, ["openb", *map(str, words)])


def test_command_shows_a_table(folder: Path) -> None:
    result = ask("--data", folder, "--trace", "x", "--policy", "fgd", "--seeds", "1-2")
    assert result.exit_code == 0
    assert "fgd" in result.output
    assert "100.00" in result.output


def test_command_runs_all_policies_unless_told_otherwise(folder: Path) -> None:
    result = ask("--data", folder, "--trace", "x", "--seeds", 1)
    assert all(name in result.output for name in ("frag", "gpuclustering", "random"))


def test_json_on_standard_output_is_nothing_but_json(folder: Path) -> None:
    result = ask("--data", folder, "--trace", "x", "--seeds", 1, "--policy", "frag", "-o", "json")
    assert json.loads(result.stdout)["runs"][0]["n_placed"] == 8


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--policy", "best"), "'frag', 'fgd', 'bestfit'"),
        (("--seeds", "9-1"), "wants FIRST-LAST within 0-2147483647, at most 1000 of them"),
        (("--seeds", "one"), "wants FIRST-LAST"),
        (("--trace", "z"), "no trace 'z'; there are: x"),
        ((), "no trace 'default'; there are: x"),
    ],
)
def test_bad_input_is_reported_in_one_sentence(
    folder: Path, words: tuple[str, ...], told: str
) -> None:
    result = ask("--data", folder, *words)
    assert result.exit_code != 0
    assert told in " ".join(result.output.split())
    assert "Traceback" not in result.output
