"""The flags that commands share, with kubectl's names.

This module and those that declare commands import only click, so that help and completion do not
load the Kubernetes client: a command imports the rest when it runs.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isnan
from typing import Any, Final, TypeVar, cast

import click

Command = TypeVar("Command", bound=Callable[..., Any])
#: Formats that `-o` accepts for lists.
FORMATS: Final = ("table", "wide", "json", "yaml", "name")


class Number(click.FloatRange):
    """A number within bounds; NaN, which is within all bounds for click, is none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; fails with a sentence."""
        found = super().convert(value, param, ctx)
        if isnan(found):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return found


@dataclass(slots=True, frozen=True)
class Where:
    """The API server, and the user and groups to impersonate."""

    kubeconfig: str = ""
    context: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The request headers for impersonation."""
        user = (("Impersonate-User", self.as_user),) if self.as_user else ()
        return user + tuple(("Impersonate-Group", group) for group in self.as_groups)


@dataclass(slots=True, frozen=True)
class How:
    """How an answer is printed: its format, headers, and whether changes are followed (`-w`)."""

    output: str = "table"
    no_headers: bool = False
    is_watched: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether columns for `-o wide` are shown."""
        return self.output == "wide"


@dataclass(slots=True, frozen=True)
class Scope:
    """One namespace (empty: that of the context), or all."""

    namespace: str = ""
    is_all: bool = False


def cluster_flags(command: Command) -> Command:
    """Adds `--kubeconfig`, `--context`, `--as` and `--as-group`, passed as `where`."""

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
            "--as-group",
            "as_groups",
            multiple=True,
            metavar="GROUP",
            help="Group to impersonate, with --as.",
        ),
        click.option("--as", "as_user", default="", metavar="USER", help="User to impersonate."),
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option("--kubeconfig", default="", help="Default: $KUBECONFIG, else ~/.kube/config."),
    )
    return _with(run, options, command)


def output_flags(*formats: str) -> Callable[[Command], Command]:
    """Adds `-o`, `--no-headers` and `-w`, passed as `how`."""
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
    """Adds `-o`; the first format of `accepted` is the default."""
    known = tuple(accepted)
    return click.option(
        "-o", "--output", type=click.Choice(known), default=known[0], show_default=True
    )


def scope_flags(command: Command) -> Command:
    """Adds `-n` and `-A`, passed as `scope`."""

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


def examples(*lines: str) -> str:
    """The epilog of a help text with these command lines."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def _with(run: Any, options: Iterable[Callable[[Any], Any]], _as: Command) -> Command:
    """`run` with the options, typed as the command that it wraps."""
    for option in options:
        run = option(run)
    return cast(Command, run)
