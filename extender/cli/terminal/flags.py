"""The flags of kubectl, with kubectl's names, for every command that talks to a cluster.

Only click is imported here and where commands are declared, so that help and completion cost no
Kubernetes client: what a command needs, it imports when it runs.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import click

Command = TypeVar("Command", bound=Callable[..., Any])
#: What `-o` accepts where a command prints a list.
FORMATS: Final = ("table", "wide", "json", "yaml", "name")


@dataclass(slots=True, frozen=True)
class Where:
    """Which API server is asked, and as whom."""

    kubeconfig: str = ""
    context: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Those by which the API server impersonates."""
        user = (("Impersonate-User", self.as_user),) if self.as_user else ()
        return user + tuple(("Impersonate-Group", group) for group in self.as_groups)


@dataclass(slots=True, frozen=True)
class How:
    """How an answer is printed: one of `FORMATS`, with headers or without, once or again and
    again."""

    output: str = "table"
    no_headers: bool = False
    is_watched: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether columns of less interest are shown too."""
        return self.output == "wide"


@dataclass(slots=True, frozen=True)
class Scope:
    """Which namespaces: one, that of the context (empty), or all."""

    namespace: str = ""
    is_all: bool = False


def cluster_flags(command: Command) -> Command:
    """`--kubeconfig`, `--context`, `--as` and `--as-group`, given to the command as `where`."""

    @functools.wraps(command)
    def run(
        *args: Any,
        kubeconfig: str,
        context: str,
        as_user: str,
        as_groups: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        if as_groups and not as_user:
            raise click.UsageError("--as-group needs --as")
        return command(*args, where=Where(kubeconfig, context, as_user, as_groups), **rest)

    options = (
        click.option(
            "--as-group", "as_groups", multiple=True, metavar="GROUP", help="Its group, with --as."
        ),
        click.option("--as", "as_user", default="", metavar="USER", help="User to impersonate."),
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option("--kubeconfig", default="", help="Default: $KUBECONFIG, else ~/.kube/config."),
    )
    return _with(run, options, command)


def output_flags(*formats: str) -> Callable[[Command], Command]:
    """`-o`, `--no-headers` and `-w`, given to the command as `how`."""
    accepted = formats or FORMATS

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, output: str, no_headers: bool, is_watched: bool, **rest: Any) -> Any:
            return command(*args, how=How(output, no_headers, is_watched), **rest)

        options = (
            click.option(
                "-w", "--watch", "is_watched", is_flag=True, help="Print what changes, until ^C."
            ),
            click.option("--no-headers", is_flag=True, help="Omit the headers."),
            format_flag(accepted),
        )
        return _with(run, options, command)

    return decorate


def format_flag(accepted: Iterable[str]) -> Callable[[Command], Command]:
    """`-o`; the first of `accepted` is the default."""
    known = tuple(accepted)
    return click.option(
        "-o", "--output", type=click.Choice(known), default=known[0], show_default=True
    )


def scope_flags(command: Command) -> Command:
    """`-n` and `-A`, given to the command as `scope`."""

    @functools.wraps(command)
    def run(*args: Any, namespace: str, is_all: bool, **rest: Any) -> Any:
        return command(*args, scope=Scope(namespace, is_all), **rest)

    options = (
        click.option("-A", "--all-namespaces", "is_all", is_flag=True, help="All namespaces."),
        namespace_flag,
    )
    return _with(run, options, command)


namespace_flag = click.option(
    "-n", "--namespace", default="", metavar="NAMESPACE", help="Default: that of the context."
)
selector_flag = click.option(
    "-l", "--selector", default="", metavar="SELECTOR", help="Pods with these labels, as kubectl."
)


def _with(run: Any, options: Iterable[Callable[[Any], Any]], _as: Command) -> Command:
    """`run` with the options; its type is that of the command that it stands for."""
    for option in options:
        run = option(run)
    return cast(Command, run)
