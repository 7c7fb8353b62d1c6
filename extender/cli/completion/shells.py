"""Shell completion: the scripts for `ballast`, and kubectl's completion of its plugin.

click generates the scripts and completes commands and flags.
"""

from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

_SHELLS: Final = ("bash", "zsh", "fish")
#: Last line of an answer to kubectl: do not complete file names, or complete them.
_NO_FILES: Final = ":4"
_FILES: Final = ":0"


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete `ballast`.

    \b
    bash:    source <(ballast completion bash)
    zsh:     source <(ballast completion zsh)
    fish:    ballast completion fish | source
    kubectl: kubectl completes `kubectl ballast` by itself where kubectl_complete-ballast is on the
             PATH, which it is where this program was installed by pip
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    root = ctx.find_root()
    click.echo(found(root.command, {}, "ballast", "_BALLAST_COMPLETE").source())


def answer_kubectl(command: click.Command, words: list[str]) -> str:
    """The answer to kubectl's completion request: one candidate a line, then a directive.

    `words` follow `kubectl ballast`; the last is incomplete.
    """
    *before, last = words or [""]
    found = _Kubectl(command, {}, "kubectl ballast", "").get_completions(before, last)
    is_file = any(item.type in ("file", "dir") for item in found)
    lines = [_line(item) for item in found if item.type == "plain"]
    return "".join(f"{line}\n" for line in (*lines, _FILES if is_file else _NO_FILES))


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)


class _Kubectl(ShellComplete):
    """Completion without a shell script: kubectl has its own."""

    name = "kubectl"
