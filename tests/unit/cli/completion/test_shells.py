"""Completion for shells and kubectl."""

import pytest
from click.testing import CliRunner

from extender.__main__ import main
from extender.cli.completion.shells import answer_kubectl


class TestCompletion:
    def test_kubectl_is_told_commands_with_their_help(self) -> None:
        lines = answer_kubectl(main, ["ho"]).splitlines()
        assert lines == ["hold\tHold pending work.", ":4"]

    def test_kubectl_is_told_flags_and_choices(self) -> None:
        assert "--all-namespaces\tAll namespaces." in answer_kubectl(main, ["queue", "--a"])
        assert answer_kubectl(main, ["queue", "-o", "y"]).splitlines() == ["yaml", ":4"]

    def test_names_that_no_cluster_tells_are_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", "/nonexistent/config")
        assert answer_kubectl(main, ["why", ""]) == ":4\n"

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_script_of_each_shell_names_the_command(self, shell: str) -> None:
        done = CliRunner().invoke(main, ["completion", shell])
        assert done.exit_code == 0, done.output
        assert "_BALLAST_COMPLETE" in done.output
