"""Help texts have examples, and each of them can be typed."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from extender.__main__ import main

_MARK = "Examples:"
#: What a user types without a cluster or with one; the others are for machines and research.
_WITH_EXAMPLES = {
    "convert", "history", "hold", "preflight", "queue", "resume", "run", "shadow", "shares", "show",
    "snapshot", "top", "usage", "web", "whatif", "why",
}  # fmt: skip


def _commands(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command)


EXAMPLES = {
    line.strip(): command.name
    for command in _commands(main)
    if command.epilog and _MARK in command.epilog
    for line in command.epilog.partition(_MARK)[2].splitlines()
    if line.strip()
}


def test_commands_for_people_have_examples() -> None:
    assert set(EXAMPLES.values()) >= _WITH_EXAMPLES


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_accepted(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line.partition(" > ")[0])
    for word in words:
        if word.endswith((".yaml", ".txt", ".sh")):
            Path(word).parent.mkdir(exist_ok=True)
            Path(word).touch()
    program, *words = words[1:] if words[0] == "kubectl" else words
    assert program == "ballast"
    command: click.Command | None = main
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(click.Context(command), words)
    assert command is not None
    assert command.make_context(name, words).command.name == EXAMPLES[line]
