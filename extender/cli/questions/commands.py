"""The commands `why`, `queue` and `shares`, which query the API `view.ballast.dev`."""

from typing import Any

import click

from extender.cli.completion.names import complete_workload
from extender.cli.terminal.flags import (
    How,
    Scope,
    Where,
    cluster_flags,
    examples,
    namespace_flag,
    output_flags,
    scope_flags,
    selector_flag,
)


@click.command(
    epilog=examples(
        "kubectl ballast why job/train-7",
        "kubectl ballast why job train-7 -n vision",
        "kubectl ballast why train-7 -w",
    )
)
@click.argument(
    "words", nargs=-1, required=True, metavar="[KIND] NAME", shell_complete=complete_workload
)
@namespace_flag
@output_flags("table", "json", "yaml", "name")
@cluster_flags
def why(words: tuple[str, ...], namespace: str, how: How, where: Where) -> None:
    """Explain why NAME waits, and what would let it start.

    NAME is a pod, a GpuPodGroup, or the owner of the pods: train-7, job/train-7, job train-7. Exit
    code 0 if it runs or starts, 3 if it waits, 4 if it will never start.

    With -w the answer is printed again when it changes, until the work runs or can never start. A
    forecast that only advances with the clock is not a change.
    """
    from extender.cli.ask import NotThereError, get_view, named, path_of, space_of
    from extender.cli.questions.absent import explain_absence
    from extender.cli.questions.explained import print_explanation
    from extender.cli.terminal.exits import NEVER, OK, WAITS
    from extender.cli.terminal.show import show_object, wait

    wanted = named(*words)
    space = space_of(Scope(namespace), where)
    path = path_of("explanations", space, "", wanted)
    before: dict[str, Any] = {}
    while True:
        try:
            answer = get_view(where, path)
        except NotThereError as error:
            found = explain_absence(where, space, wanted)
            raise click.ClickException(found or error.message) from None
        if differs(before, answer):
            show_object(how, answer, print_explanation, f"workload/{answer['workload']}")
        if not how.is_watched or answer["state"] in ("runs", "never"):
            break
        before = answer
        wait()
    raise SystemExit({"waits": WAITS, "never": NEVER}.get(answer["state"], OK))


def differs(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the answers differ in more than times that are relative to the answer."""
    return _without_times(before) != _without_times(after)


def _without_times(answer: dict[str, Any]) -> dict[str, Any]:
    forecast = {**(answer.get("forecast") or {}), "earliest": "", "latest": ""}
    return {**answer, "asOf": "", "forecast": forecast}


@click.command(
    epilog=examples(
        "kubectl ballast queue",
        "kubectl ballast queue -A -o wide",
        "kubectl ballast queue -l app=train -w",
    )
)
@scope_flags
@selector_flag
@output_flags()
@cluster_flags
def queue(scope: Scope, selector: str, how: How, where: Where) -> None:
    """List pending work in the order in which it is decided.

    Work of other namespaces is shown as its project and size, unless -A is given, which needs the
    right to list it. With -l only workloads are shown that have a pod with these labels.
    """
    from extender.cli.ask import Answer, ask, get_view, keys_of, path_of, space_of
    from extender.cli.questions.listed import QUEUE
    from extender.cli.terminal.show import show_list

    space = space_of(scope, where)
    path = path_of("queues", space, "")

    def fetch() -> Answer:
        answer = get_view(where, path)
        if selector:
            keys = ask(where, lambda client: keys_of(client, space, selector))
            answer["items"] = [
                each for each in answer.get("items", ()) if each.get("workload") in keys
            ]
        return answer

    show_list(how, QUEUE, fetch)


@click.command(
    epilog=examples(
        "kubectl ballast shares",
        "kubectl ballast shares -o json",
    )
)
@output_flags()
@cluster_flags
def shares(how: How, where: Where) -> None:
    """Show quota, limit, fair share and held GPUs of departments and projects."""
    from extender.cli.ask import get_view
    from extender.cli.questions.listed import SHARES
    from extender.cli.terminal.show import show_list

    show_list(how, SHARES, lambda: get_view(where, "/shares"))
