"""docs/reference/commands.md: all commands with their options, from the commands themselves.

The programs of an installation, which `ballast --help` does not list, come last.
"""

from collections.abc import Iterator

import click

import gpu_shim.__main__
import webhooks.__main__
from extender.__main__ import main

INTRO = """# Commands

One program, `ballast`; as a plugin of kubectl it is called `kubectl ballast`.
[Questions](../questions.md), [simulation](../simulate.md) and [installing](../install.md) describe
the answers.
"""
PROGRAMS = """
## Programs of an installation

The Deployments and the DaemonSet in `manifests` run these programs; `ballast --help` lists none of
them. [The node](../gpu-shim.md#configuration) has the options of the node agent with more detail.
"""
#: Programs with commands of their own.
_OTHERS = (
    ("python -m webhooks", webhooks.__main__.main),
    ("python -m gpu_shim", gpu_shim.__main__.main),
)
#: Width of help texts, independent of the terminal.
_WIDTH = 96


def page() -> str:
    """The page's text."""
    context = click.Context(main, info_name="ballast", terminal_width=_WIDTH)
    commands = "".join(_section(command, context) for command in _commands(context))
    hidden = [(name, command) for name, command in main.commands.items() if command.hidden]
    programs = "".join(_section(each, context, "###") for each in hidden)
    programs += "".join(_section(each, None, "###") for each in _OTHERS)
    return INTRO + commands + PROGRAMS + programs


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, command


def _section(
    named: tuple[str, click.Command], parent: click.Context | None, level: str = "##"
) -> str:
    name, command = named
    context = click.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH)
    text = f"\n{level} {context.command_path}\n\n```\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        below = [
            (each, command.get_command(context, each)) for each in command.list_commands(context)
        ]
        text += "".join(_section((each, found), context, "###") for each, found in below if found)
    return text
