"""Shared flags of commands, and the cost of `--help`."""

import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from extender.__main__ import _ELSEWHERE, _SECTIONS, main
from extender.cli.terminal.flags import How, Scope, Where, cluster_flags, output_flags, scope_flags


class TestFlags:
    def test_flags_are_given_as_values(self) -> None:
        found: dict[str, Any] = {}

        @click.command()
        @scope_flags
        @output_flags()
        @cluster_flags
        def command(scope: Scope, how: How, where: Where) -> None:
            found.update(scope=scope, how=how, where=where)

        args = ["-n", "a", "-o", "wide", "--no-headers", "-w", "--as", "ann", "--as-group", "g"]
        done = CliRunner().invoke(command, args)
        assert done.exit_code == 0, done.output
        assert found["scope"] == Scope("a", is_all=False)
        assert found["how"] == How("wide", no_headers=True, is_watched=True)
        assert found["where"].headers == (
            ("Impersonate-User", "ann"),
            ("Impersonate-Group", "g"),
        )

    def test_group_without_user_is_refused(self) -> None:
        done = CliRunner().invoke(main, ["shares", "--as-group", "g"])
        assert done.exit_code == 2
        assert "--as-group needs --as" in done.output

    def test_every_command_that_people_see_is_in_one_section(self) -> None:
        listed = [name for _, names_of in _SECTIONS for name in names_of]
        # Commands that others add stand in the list of all as soon as they are there.
        assert sorted(listed) == sorted(_ELSEWHERE)


@pytest.mark.parametrize(
    "words",
    [
        ["top", "nodes", "-n", "a"],
        ["top", "gpus", "-A"],
        ["top", "projects", "-l", "a=b"],
        ["whatif", "-w", "--quota", "a=1"],
        ["whatif", "--no-headers", "--quota", "a=1"],
    ],
    ids=" ".join,
)
def test_a_flag_that_would_do_nothing_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(main, words).exit_code == 2


def test_help_imports_neither_a_client_nor_a_decision() -> None:
    script = """
import sys
from extender.__main__ import main
for words in (
    [], ["why"], ["queue"], ["whatif"], ["run"], ["top"], ["convert"], ["simulate"],
    ["bench"], ["bench", "cycle"],
):
    try:
        main([*words, "--help"])
    except SystemExit:
        pass
heavy = {"aiohttp", "asyncio", "msgspec", "rich.console", "extender.policy.decide", "yaml"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr.strip() == "[]", done.stderr
