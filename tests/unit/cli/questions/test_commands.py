"""The commands `why`, `queue` and `shares`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.__main__ import main
from extender.cli.questions.commands import differs
from tests.unit.cli.questions.answers import EXPLANATION


@pytest.mark.parametrize(
    "words",
    [("why", ".."), ("why", "x y"), ("queue", "-n", "a/b"),
     ("top", "pods", "-n", "../.."), ("history", "-n", "a?b"), ("hold", "x", "-n", "a/b")],
)  # fmt: skip
def test_what_is_no_name_is_refused_before_anything_is_asked(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """It would become another path."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    done = CliRunner().invoke(main, [*words, "--kubeconfig", str(kubeconfig)])
    assert (done.exit_code, "is not a name" in done.stderr) == (2, True), done.stderr


def test_why_does_not_call_a_forecast_that_moves_with_the_clock_a_change() -> None:
    def at(moment: int, word: str) -> dict[str, Any]:
        times = {"earliest": str(moment), "latest": str(moment + 60)}
        return {"asOf": moment, "forecast": {"word": word, **times}}

    first = at(1, "promised")
    assert not differs(first, at(2, "promised"))
    assert differs(first, at(2, "forecast"))
    assert differs({}, first)


@pytest.mark.parametrize(
    ("state", "code"), [("runs", 0), ("starting", 0), ("waits", 3), ("never", 4)]
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_why_says_by_its_code_whether_work_starts(
    monkeypatch: pytest.MonkeyPatch, state: str, code: int, output: str
) -> None:
    monkeypatch.setattr("extender.cli.ask.get_view", lambda *_: EXPLANATION | {"state": state})
    done = CliRunner().invoke(main, ["why", "b", "-n", "a", "-o", output])
    assert done.exit_code == code, done.output


@pytest.mark.parametrize(("last", "code"), [("runs", 0), ("never", 4)])
def test_why_is_followed_until_the_work_runs_or_can_never_start(
    monkeypatch: pytest.MonkeyPatch, last: str, code: int
) -> None:
    states = iter(["waits", "waits", "starting", last])
    monkeypatch.setattr(
        "extender.cli.ask.get_view", lambda *_: EXPLANATION | {"state": next(states)}
    )
    monkeypatch.setattr("extender.cli.terminal.show.time.sleep", lambda _: None)
    done = CliRunner().invoke(main, ["why", "b", "-n", "a", "-w", "-o", "name"])
    assert (done.exit_code, done.output) == (code, "workload/a/b\n" * 3)
    assert next(states, None) is None


@pytest.mark.parametrize("words", [["b"], ["job/b"], ["job", "b"]], ids=" ".join)
def test_why_takes_a_name_with_or_without_its_kind(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    asked = []

    def get_view(_where: object, path: str) -> dict[str, Any]:
        asked.append(path)
        return EXPLANATION | {"state": "runs"}

    monkeypatch.setattr("extender.cli.ask.get_view", get_view)
    assert CliRunner().invoke(main, ["why", *words, "-n", "a"]).exit_code == 0
    assert asked == ["/namespaces/a/explanations/b"]
