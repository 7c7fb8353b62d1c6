"""`ballast replay`: published traces through our own decisions, compared with published results."""

import click

from extender.cli.terminal.commands import Commands
from extender.lab.openb.command import openb
from extender.lab.openb.near_sets import near_sets
from extender.lab.philly.command import philly


@click.group(cls=Commands)
def replay() -> None:
    """Replay published traces, and compare with published results."""


replay.add_command(near_sets)
replay.add_command(openb)
replay.add_command(philly)
