"""An option's span of whole numbers: `42` or `42-51`."""

import click


class Span(click.ParamType[range]):
    """A span between `lowest` and `highest` with at most `most` numbers."""

    def __init__(self, name: str, lowest: int, highest: int, most: int) -> None:
        self.name = name
        self._bounds = lowest, highest, most

    def convert(
        self, value: str | range, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """The span; any other text fails with a message that says what is accepted."""
        if isinstance(value, range):
            return value
        lowest, highest, most = self._bounds
        first, dash, last = value.partition("-")
        last = last if dash else first
        wanted = f"wants FIRST-LAST within {lowest}-{highest}, at most {most} of them"
        if not (first.isdecimal() and last.isdecimal() and len(value) < 20):
            self.fail(f"{value!r}: {wanted}", param, ctx)
        span = range(int(first), int(last) + 1)
        if not (0 < len(span) <= most and lowest <= span[0] and span[-1] <= highest):
            self.fail(f"{value!r}: {wanted}", param, ctx)
        return span
