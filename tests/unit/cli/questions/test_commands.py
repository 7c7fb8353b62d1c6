"""The commands `why`, `queue` and `shares`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.__main__ import main
from extender.cli.questions.commands import _differs


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
    assert not _differs(first, at(2, "promised"))
    assert _differs(first, at(2, "forecast"))
    assert _differs({}, first)
