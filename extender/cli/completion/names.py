"""Completion of object names; none if the API server does not answer in time."""

from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from extender.api.names import API_PATH, VIEW_PATH

#: The longest that completion waits for the API server.
DEADLINE_S: Final = 1.0


def complete_workload(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Pending workloads of the namespace."""
    space = _space(ctx)
    found = _items(ctx, f"{VIEW_PATH}/namespaces/{space}/queues")
    keys = (each.get("workload", "") for each in found)
    names = sorted({key.partition("/")[2] for key in keys if key.startswith(f"{space}/")})
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_project(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """GpuProjects of the cluster."""
    found = _items(ctx, f"{API_PATH}/gpuprojects")
    names = sorted(each["metadata"]["name"] for each in found)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _space(ctx: click.Context) -> str:
    from extender.kube.connection import namespace_of

    given = ctx.params
    return given.get("namespace") or namespace_of(
        given.get("kubeconfig") or "", given.get("context") or ""
    )


def _items(ctx: click.Context, path: str) -> list[dict[str, Any]]:
    from extender.cli.ask import answer_to
    from extender.cli.terminal.flags import Where
    from extender.kube.transport import Call

    given = ctx.params
    where = Where(
        given.get("kubeconfig") or "",
        given.get("context") or "",
        given.get("as_user") or "",
        tuple(given.get("as_groups") or ()),
    )
    try:
        items: list[dict[str, Any]] = answer_to(where, Call("GET", path, deadline_s=DEADLINE_S))[
            "items"
        ]
    except (click.ClickException, KeyError):
        return []
    return items
