"""The commands `why`, `queue` and `shares`."""

from typing import Any

from extender.cli.questions.commands import _differs


def test_why_does_not_call_a_forecast_that_moves_with_the_clock_a_change() -> None:
    def at(moment: int, word: str) -> dict[str, Any]:
        times = {"earliest": str(moment), "latest": str(moment + 60)}
        return {"asOf": moment, "forecast": {"word": word, **times}}

    first = at(1, "promised")
    assert not _differs(first, at(2, "promised"))
    assert _differs(first, at(2, "forecast"))
    assert _differs({}, first)
