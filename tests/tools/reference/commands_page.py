"""docs/reference/commands.md: all commands with their options, from the commands themselves."""

from collections.abc import Iterator

import click

from extender.__main__ import main

INTRO = """# Commands

One program, `ballast`; as a plugin of kubectl it is called `kubectl ballast`.
[Questions](../questions.md), [simulation](../simulate.md) and [installing](../install.md) describe
the answers.
"""
#: Width of help texts, independent of the terminal.
_WIDTH = 96


def page() -> str:
    """The page's text."""
    context = click.Context(main, info_name="ballast", terminal_width=_WIDTH)
    return INTRO + "".join(_section(command, context) for command in _commands(context))


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, command


def _section(named: tuple[str, click.Command], parent: click.Context) -> str:
    name, command = named
    context = click.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH)
    level = "##" if parent.parent is None else "###"
    text = f"\n{level} {context.command_path}\n\n```\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        below = [
            (each, command.get_command(context, each)) for each in command.list_commands(context)
        ]
        text += "".join(_section((each, found), context) for each, found in below if found)
    return text
