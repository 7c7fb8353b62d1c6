"""`ballast hold` and `ballast resume`: hold pending workloads, which keep their queue position."""

import click

from extender.cli.completion.names import complete_workload
from extender.cli.terminal.flags import (
    Scope,
    Where,
    cluster_flags,
    examples,
    namespace_flag,
    selector_flag,
)


@click.command(
    epilog=examples(
        "kubectl ballast hold job/train-7",
        "kubectl ballast hold -l app=train -n vision",
    )
)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=complete_workload)
@namespace_flag
@selector_flag
@cluster_flags
def hold(names: tuple[str, ...], namespace: str, selector: str, where: Where) -> None:
    """Hold pending work; it keeps its age, and so its position in the queue.

    NAME is a pod, a GpuPodGroup, or the owner of the pods: train-7, job/train-7. The annotation
    ballast.dev/hold: "true" is set on the GpuPodGroup, which holds all its pods, future ones
    included; without a group it is set on each pending pod. Pods that have GPUs keep running.
    """
    _set(names, selector, Scope(namespace), where, is_held=True)


@click.command(
    epilog=examples(
        "kubectl ballast resume job/train-7",
        "kubectl ballast resume -l app=train -n vision",
    )
)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=complete_workload)
@namespace_flag
@selector_flag
@cluster_flags
def resume(names: tuple[str, ...], namespace: str, selector: str, where: Where) -> None:
    """Let held work start; its position in the queue is as if it had not been held."""
    _set(names, selector, Scope(namespace), where, is_held=False)


def _set(
    names: tuple[str, ...], selector: str, scope: Scope, where: Where, *, is_held: bool
) -> None:
    from extender.cli.ask import ask, named, space_of
    from extender.cli.work.holds import change

    if bool(names) == bool(selector):
        raise click.UsageError("give either names or a selector (-l)")
    wanted = tuple(map(named, names))
    space = space_of(scope, where)
    done = ask(where, lambda client: change(client, space, wanted, selector, is_held=is_held))
    for each in done.changed:
        click.echo(f"{each} {'held' if is_held else 'resumed'}")
    if done.missing:
        state = "waits" if is_held else "is held"
        raise click.ClickException(
            f"nothing called {', '.join(done.missing)} {state} in namespace {space}"
        )
