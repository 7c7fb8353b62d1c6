"""Output of `why` and `whatif` in a pipe: one line a row, without trailing blanks."""

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from rich.text import Text

from extender.__main__ import main
from extender.cli.questions.explained import print_explanation
from extender.view import command
from tests.unit.cli.questions.answers import EXPLANATION

#: What `a` borrows is what a quota of `b` takes back.
STOPS: Final = """
scenario: v1
id: stops
nodes: [{name: n1, gpus: 1}]
queues: [{name: d, gpu: {quota: 1}}, {name: a, parent: d}, {name: b, parent: d}]
jobs:
- {name: runs, queue: a, runningFor: 600, tasks: [{name: t, state: running, node: n1}]}
- {name: waits, queue: b, tasks: [{name: t}]}
"""
#: The only node, with a pod of `a`.
DRAINED: Final = """
scenario: v1
id: drained
nodes: [{name: n1, gpus: 1}]
queues: [{name: d, gpu: {quota: 1}}, {name: a, parent: d, gpu: {quota: 1}}]
jobs:
- {name: runs, queue: a, tasks: [{name: t, state: running, node: n1}]}
"""
LONG = "needs 8 GPUs on one node in each of 12 pods; " * 6 + "and no more"


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(" ")]


def test_ways_of_why_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        {"name": "room now", "outcome": "no", "message": LONG},
        {"name": "limits", "outcome": "yes", "message": "it has no limit"},
    ]
    not_tried = ["more priority", "more quota"]
    print_explanation(EXPLANATION | {"project": "a", "checks": checks, "notTried": not_tried})
    found = rows(capsys.readouterr().out)
    assert found == [
        f"  no room now  {LONG}",
        "  ok limits    it has no limit",
        "  not tried, since that would have taken too long: more priority, more quota",
    ]


def test_sentence_of_several_checks_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"room now": LONG, "moving others": LONG, "reclaim": "not above", "preemption": LONG}
    checks = [{"name": name, "outcome": "no", "message": text} for name, text in said.items()]
    print_explanation(EXPLANATION | {"project": "a", "checks": checks})
    assert rows(capsys.readouterr().out) == [
        f"  no room now       {LONG}",
        "  no moving others  as for room now",
        "  no reclaim        not above",
        "  no preemption     as for room now",
    ]


def test_memory_of_a_card_and_the_queue_in_each_pool_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue = dict.fromkeys(("quota", "fairShare", "held", "borrowed", "waiting"), "1")
    asked = {"request": "0.25", "gpuMemory": "20 GiB", "nodePools": ["a100", "h100"]}
    place = {"inProject": 1, "ofProject": 1, "inPool": 2, "ofPool": 3}
    queues = [queue | {"queue": "a", "nodePool": pool} for pool in ("a100", "h100")]
    print_explanation(
        EXPLANATION | asked | {"place": place, "queue": queues[0], "otherQueues": queues[1:]}
    )
    out = capsys.readouterr().out
    assert "1 pod, 0.25 GPUs (20 GiB of memory)   training" in out
    assert "2nd of 3 in its node pools" in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("a ")] == [
        ["a", "a100"],
        ["a", "h100"],
    ]


def test_work_whose_project_is_gone_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(EXPLANATION | {"reason": "UnknownProject", "message": "no project lists a"})
    head, _, state, message, *_ = capsys.readouterr().out.splitlines()
    assert head == "a/b   no project   1 pod, 1 GPU   training (50)   preemptible"
    assert (state, message) == ("WAITS   UnknownProject", "  no project lists a")


def test_changes_of_whatif_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [
        {"what": "waits", "workload": "a/b", "request": "96", "message": LONG},
        {"what": "starts", "workload": "a/c", "request": "1", "message": "on n1"},
        {"what": "stays", "workload": "a/d", "request": "1", "message": "stops without the change"},
    ]
    held = {"heldBefore": "1", "heldAfter": "1", "waitingBefore": "0", "waitingAfter": "0"}
    command.print_changes({"status": {"changes": changes, **held}})
    waits, starts, stays = rows(capsys.readouterr().out)
    assert stays.split()[:3] == ["=", "a/d", "stays"]
    assert waits.split() == [".", "a/b", "waits", "96", "GPUs", *LONG.split()]
    assert starts.endswith("on n1")


def test_each_change_has_a_sign_that_the_page_explains() -> None:
    page = Path("docs/questions.md").read_text()
    assert all(f"`{Text.from_markup(sign)}` {what}" in page for what, sign in command.SIGNS.items())


def test_stopped_work_and_no_answer_have_codes_of_their_own(tmp_path: Path) -> None:
    case = tmp_path / "case.yaml"
    case.write_text(STOPS)
    asked = ["whatif", "-f", str(case), "--quota", "b=1"]
    done = CliRunner().invoke(main, asked)
    assert (done.exit_code, "stops" in done.output) == (5, True), done.output
    case.write_text("scenario: v1")
    assert CliRunner().invoke(main, asked).exit_code == 1


@pytest.mark.parametrize(
    ("budgets", "what"),
    [
        ("", "stops"),
        ("budgets: [{name: keep, jobs: [runs], minAvailable: 1}]", "cannot move"),
    ],
)
def test_a_drain_that_stops_work_or_would_hang_has_the_code_of_stopped_work(
    tmp_path: Path, budgets: str, what: str
) -> None:
    case = tmp_path / "case.yaml"
    case.write_text(DRAINED + budgets)
    done = CliRunner().invoke(main, ["whatif", "-f", str(case), "--drain", "n1"])
    assert (done.exit_code, what in done.output) == (5, True), done.output


def test_a_drain_after_which_all_work_has_a_place_is_no_bad_news(tmp_path: Path) -> None:
    case = tmp_path / "case.yaml"
    case.write_text(DRAINED.replace("gpus: 1}]", "gpus: 1}, {name: n2, gpus: 1}]"))
    done = CliRunner().invoke(main, ["whatif", "-f", str(case), "--drain", "n1"])
    assert (done.exit_code, "n1 -> n2" in done.output) == (0, True), done.output


def test_a_forecast_is_one_line_in_a_pipe_and_broken_between_words_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = EXPLANATION | {"forecast": {"word": "no forecast", "message": LONG}}
    print_explanation(answer)
    assert f"FORECAST  no forecast: {LONG}\n" in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_explanation(answer)
    lines = capsys.readouterr().out.splitlines()
    start = next(ix for ix, line in enumerate(lines) if line.startswith("FORECAST  no"))
    told = [line[10:].strip() for line in lines[start:] if line.startswith(("FORECAST", " " * 10))]
    assert len(told) == 2
    assert " ".join(told) == f"no forecast: {LONG}"


def test_changes_fit_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [
        {"what": "stops", "workload": "vision/train-dsxwn", "request": "4", "message": LONG},
        {"what": "moves", "workload": "ads/train-jsdqh", "request": "1", "message": "n1 -> n2"},
    ]
    for each in changes:
        each["lost"] = "12.3"
    held = {"heldBefore": "1", "heldAfter": "1", "waitingBefore": "0", "waitingAfter": "0"}
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("extender.cli.terminal.show.WIDTH", 80)
    command.print_changes({"status": {"changes": changes, **held}})
    stops, *message, moves = rows(capsys.readouterr().out)
    assert " ".join(stops.split()) == "- vision/train-dsxwn stops 4 GPUs loses 12.3 GPU-h"
    assert " ".join(line.strip() for line in message) == LONG
    assert " ".join(moves.split()) == "~ ads/train-jsdqh moves 1 GPU loses 12.3 GPU-h n1 -> n2"
    assert max(len(line.rstrip()) for line in (stops, *message, moves)) <= 80
