"""`ballast history`: the history of workloads."""

import click

from extender.cli.completion.names import complete_workload
from extender.cli.terminal.flags import (
    How,
    Scope,
    Where,
    cluster_flags,
    examples,
    output_flags,
    scope_flags,
    selector_flag,
)


@click.command(
    epilog=examples(
        "kubectl ballast history job/train-7",
        "kubectl ballast history --evictions -n vision",
    )
)
@click.argument("words", nargs=-1, metavar="[[KIND] NAME]", shell_complete=complete_workload)
@click.option("--evictions", is_flag=True, help="Only evictions and moves.")
@scope_flags
@selector_flag
@output_flags()
@cluster_flags
def history(
    words: tuple[str, ...],
    evictions: bool,
    selector: str,
    scope: Scope,
    how: How,
    where: Where,
) -> None:
    """Show what happened to NAME, or to all work of the namespace, the newest last.

    NAME is a pod, a GpuPodGroup, or the owner of the pods: train-7, job/train-7, job train-7. The
    history is read from Ballast's events, which the API server keeps for an hour (--event-ttl), and
    from objects that still exist: when pods were created and started, and the conditions of
    GpuPodGroups.
    """
    from extender.cli.ask import Answer, ask, named, space_of
    from extender.cli.past.happened import listing_of, read
    from extender.cli.terminal.show import show_list

    wanted = named(*words) if words else ""
    space = space_of(scope, where)

    def fetch() -> Answer:
        answer = ask(where, lambda client: read(client, space, wanted, selector))
        if evictions:
            answer["items"] = [each for each in answer["items"] if each["isEviction"]]
        return answer

    show_list(how, listing_of(space, wanted, is_evictions=evictions), fetch)
