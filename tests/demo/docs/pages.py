"""Commands in pages of the documentation, with the output that the page shows for them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

PROGRAMS: Final = ("kubectl ", "ballast ", ".venv/bin/ballast ")
FENCE: Final = re.compile(r"^ *```")
SPAN: Final = re.compile(r"`([^`]+)`")
#: A word of a heading or an answer, such as `FAIR` or `WAITS`, but not a part of a name, such as
#: `NVIDIA-A100`, or a unit, as in `1 GPU`.
CAPITALS: Final = re.compile(r"(?<!\S)(?<!\d )[A-Z]{2,}(?!\S)")
WORD: Final = re.compile(r"(?<=\s)[a-z]{3,}(?!\S)")


@dataclass(slots=True, frozen=True)
class Printed:
    """A command at a line of a page; `output` has the lines that the page shows for it."""

    page: str
    line: int
    command: str
    output: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


def read(page: str, text: str) -> Iterator[Printed]:
    """Commands in fenced blocks, and in code spans with arguments, in the order of the page.

    A span such as `kubectl ballast why` only names a command.
    """
    block: list[tuple[int, str]] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if FENCE.match(line):
            if block is not None:
                yield from _of_block(page, block)
            block = None if block is not None else []
        elif block is not None:
            block.append((number, line))
        else:
            yield from _of_spans(page, number, line)


def suggested(text: str) -> list[Printed]:
    """The commands that the demonstration suggests at its end."""
    lines = enumerate(text.splitlines(), start=1)
    return [
        Printed("make demo KEEP=1", number, line.strip())
        for number, line in lines
        if line.strip().startswith(PROGRAMS)
    ]


def missing(printed: Printed, output: str) -> list[str]:
    """Words that the page shows and `output` lacks: of headings, or all words if there are none.

    Names and figures are not compared, since the page's are of another cluster.
    """
    lines = [set(line.split()) for line in output.splitlines()]
    headings = [CAPITALS.findall(line) for line in printed.output]
    wanted = [each for each in headings if each]
    if not wanted:
        wanted = [WORD.findall(line) for line in printed.output]
    return [" ".join(each) for each in wanted if not any(set(each) <= line for line in lines)]


def _of_block(page: str, block: list[tuple[int, str]]) -> Iterator[Printed]:
    is_session = any(line.lstrip().startswith("$ ") for _, line in block)
    at, command = 0, ""
    output: list[str] = []
    is_open = False
    for number, line in block:
        text = line.strip()
        if is_open:
            command, is_open = command.removesuffix("\\") + text, text.endswith("\\")
        elif text.startswith("$ ") or (not is_session and text.startswith(PROGRAMS)):
            if command:
                yield Printed(page, at, command, tuple(output))
            at, command, output = number, text.removeprefix("$ "), []
            is_open = text.endswith("\\")
        elif is_session:
            output.append(line)
    if command:
        yield Printed(page, at, command, tuple(output))


def _of_spans(page: str, number: int, line: str) -> Iterator[Printed]:
    for span in SPAN.findall(line):
        words = span.replace(" ballast ", "-ballast ").split()
        if span.startswith(PROGRAMS) and len(words) > 2:
            yield Printed(page, number, span.replace("\\|", "|"))
