"""The command `ballast`: the extender and the controller as processes.

Imports stay inside the commands, so that asking for help costs no Kubernetes client.
"""

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from extender.cli.terminal.flags import Number

#: Research, which the image leaves out.
_LAB: Final = "extender.lab"
_REPLAY: Final = "replay"


@dataclass(slots=True, frozen=True)
class _Elsewhere:
    """A command that is imported when it is called for: asking for help imports none."""

    module: str
    name: str
    help: str


_ELSEWHERE: Final = {
    "why": _Elsewhere("extender.cli.questions.commands", "why", "Explain why work waits."),
    "queue": _Elsewhere("extender.cli.questions.commands", "queue", "List pending work in order."),
    "shares": _Elsewhere(
        "extender.cli.questions.commands", "shares", "Show quotas, shares and usage."
    ),
    "report": _Elsewhere("extender.cli.past.report", "report", "Report usage."),
    "top": _Elsewhere("extender.cli.holdings.top", "top", "Show what holds GPUs now."),
    "history": _Elsewhere("extender.cli.past.history", "history", "Show the history of work."),
    "whatif": _Elsewhere("extender.view.command", "whatif", "Show what a change would do."),
    "shadow": _Elsewhere("extender.shadow.command", "shadow", "Report what Ballast would decide."),
    "run": _Elsewhere("extender.cli.work.submit", "run", "Create a Job for GPUs."),
    "hold": _Elsewhere("extender.cli.work.hold", "hold", "Hold pending work."),
    "resume": _Elsewhere("extender.cli.work.hold", "resume", "Let held work start."),
    "convert": _Elsewhere(
        "extender.cli.conversion.convert", "convert", "Convert other schedulers' objects."
    ),
    "snapshot": _Elsewhere(
        "extender.cli.scenarios.snapshot", "snapshot", "Write the cluster as a scenario file."
    ),
    "completion": _Elsewhere(
        "extender.cli.completion.shells", "completion", "Print a shell completion script."
    ),
    "web": _Elsewhere("extender.web.command", "web", "Show all of this in a browser."),
    "preflight": _Elsewhere(
        "extender.cli.checks.preflight",
        "preflight",
        "Check a cluster before or after installation.",
    ),
    "scenario": _Elsewhere(
        "extender.cli.scenarios.scenario", "scenario", "Decide on clusters in files."
    ),
    "simulate": _Elsewhere(
        "extender.cli.scenarios.simulate", "simulate_command", "Run the cluster of a file for days."
    ),
    _REPLAY: _Elsewhere(f"{_LAB}.commands", "replay", "Replay published traces."),
    "bench": _Elsewhere("extender.cli.scenarios.bench", "bench", "Benchmark decisions."),
    "time-slicing": _Elsewhere(
        "gpu_shim.cli", "time_slicing", "Run cases of time-slicing on one card."
    ),
    "gpu": _Elsewhere("gpu_shim.cli", "gpu", "Show the GPUs of one node."),
}


#: Commands as the help lists them.
_SECTIONS: Final = (
    ("Questions", ("why", "queue", "shares", "top", "history", "whatif", "report", "web")),
    ("Work", ("run", "hold", "resume")),
    ("Files", ("scenario", "simulate", "snapshot", "convert", _REPLAY, "bench")),
    ("Machines", ("preflight", "shadow", "gpu", "time-slicing", "completion")),
)


def _has_lab() -> bool:
    return importlib.util.find_spec(_LAB) is not None


class _Commands(click.Group):
    """Loads a command when it is called for."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """A context in which the plugin of kubectl has the name that people type."""
        name = "kubectl ballast" if info_name == "kubectl-ballast" else info_name
        return super().make_context(name, args, parent, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; for a name that does not exist, similar names that `--help` lists."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            known = self.list_commands(ctx)
            raise NoSuchCommand(error.command_name, possibilities=known, ctx=ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """What people call; programs of an installation can be called and are not listed."""
        absent = set() if _has_lab() else {_REPLAY}
        return sorted(_ELSEWHERE.keys() - absent)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and flags; click's own would import every command for its help."""
        found = [
            CompletionItem(name, help=_ELSEWHERE[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = _ELSEWHERE.get(cmd_name)
        if known is None:
            return super().get_command(ctx, cmd_name)
        if cmd_name == _REPLAY and not _has_lab():
            raise click.ClickException(
                "this installation has no lab (the image leaves it out); run ballast replay in a"
                " checkout of the sources, after make setup"
            )
        command: click.Command = getattr(importlib.import_module(known.module), known.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands that people call, by what they are for; none is imported."""
        there = set(self.list_commands(ctx))
        for title, names in _SECTIONS:
            rows = [(name, _ELSEWHERE[name].help) for name in names if name in there]
            with formatter.section(title):
                formatter.write_dl(rows)


_kubeconfig = click.option(
    "--kubeconfig", default="", help="Default: $KUBECONFIG, else the service account."
)
_metrics_listen = functools.partial(
    click.option,
    "--metrics-listen",
    show_default=True,
    help="Address for metrics and probes.",
)
#: Options of a program of which one replica at a time acts.
_lease_namespace = click.option(
    "--namespace", default="ballast-system", show_default=True, help="Namespace of the Lease."
)
_identity_option = click.option(
    "--identity", default="", help="Default: host name and a random end."
)
#: An option that takes a time above 0.
_seconds = functools.partial(click.option, type=Number(min=0, min_open=True), show_default=True)
_lease_duration = _seconds(
    "--lease-duration",
    "lease_duration_s",
    default=15.0,
    help="Seconds after which a Lease that was not renewed passes to another replica.",
)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed or negative result, 2 wrong usage; why: 3 waits, 4 will"
    " never start; whatif: 5 would stop work.",
)
@click.version_option(package_name="ballast")
def main() -> None:
    """GPU sharing and fair share for Kubernetes, on the stock kube-scheduler."""


@main.command(hidden=True)
@click.option(
    "--listen", default="127.0.0.1:8888", show_default=True, help="Address of the extender's verbs."
)
@_kubeconfig
@click.option("--tls-cert", default="", help="Certificate file; needed off loopback.")
@click.option("--tls-key", default="", help="The certificate's key file.")
@click.option("--client-ca", default="", help="CA file of the clients that may call the verbs.")
@click.option("--allowed-client", multiple=True, help="Name that a client certificate may have.")
@click.option("--metrics-listen", default="", help="Separate address for metrics and probes.")
def serve(allowed_client: tuple[str, ...], **given: str) -> None:
    """Answer kube-scheduler's filter, prioritize, preempt and bind."""
    from extender.http.serve import ServeOptions, run  # noqa: PLC0415

    names = {"allowed_clients": allowed_client} if allowed_client else {}
    _run(run(ServeOptions(**given, **names)))  # type: ignore[arg-type]


@main.command(hidden=True)
@_kubeconfig
@_lease_namespace
@_identity_option
@_metrics_listen(default="127.0.0.1:8889")
@_lease_duration
@_seconds(
    "--bind-timeout",
    "bind_timeout_s",
    default=30.0,
    help="Seconds after which a released pod that is not bound is planned again.",
)
@_seconds(
    "--cycle-budget",
    "cycle_budget_s",
    default=1.0,
    help="CPU seconds per cycle; workloads not considered come first in the next one.",
)
@click.option(
    "--usage-period",
    "usage_period_s",
    type=Number(min=0.05, max=300.0),
    default=60.0,
    show_default=True,
    help="Seconds between two writes of the usage records.",
)
def control(identity: str, metrics_listen: str, **given: Any) -> None:
    """Decide what runs: the fair-share cycle, one leader at a time."""
    from extender.cycle.replica import ControlOptions  # noqa: PLC0415
    from extender.kube.anew import run_anew  # noqa: PLC0415

    options = ControlOptions(identity=_identity(identity), **given)
    _run(run_anew(lambda: _control(options, metrics_listen)))


@main.command(hidden=True)
@click.option("--listen", default="127.0.0.1:8443", show_default=True, help="For kube-apiserver.")
@_kubeconfig
@_lease_namespace
@_metrics_listen(default="127.0.0.1:8890")
def view(**given: Any) -> None:
    """Answer why work waits and what would happen if, as an aggregated API."""
    from extender.view.program import ViewOptions, run  # noqa: PLC0415

    _run(run(ViewOptions(**given)))


@main.command(hidden=True)
@_kubeconfig
@_lease_namespace
@_identity_option
@_metrics_listen(default="127.0.0.1:8892")
@click.option(
    "--secrets-namespace",
    default="kueue-system",
    show_default=True,
    help="Where the kubeconfig Secrets are that MultiKueueClusters name.",
)
@click.option(
    "--reserve-within",
    "reserve_s",
    type=Number(min=1.0),
    default=300.0,
    show_default=True,
    help="Seconds that a nominated cluster has to admit a Workload.",
)
@click.option(
    "--answer-within",
    "answer_s",
    type=Number(min=0.1, max=60.0),
    default=15.0,
    show_default=True,
    help="Seconds that a cluster has to answer.",
)
@_lease_duration
def dispatch(identity: str, **given: Any) -> None:
    """Run on a manager cluster of MultiKueue: nominate the worker cluster of each Workload.

    One replica at a time nominates: the one that holds the Lease.
    """
    from extender.dispatch.program import DispatchOptions, run  # noqa: PLC0415

    _run(run(DispatchOptions(identity=_identity(identity), **given)))


def _identity(stated: str) -> str:
    """The name of this process in an election."""
    import secrets  # noqa: PLC0415
    import socket  # noqa: PLC0415

    host = os.environ.get("POD_NAME") or socket.gethostname()
    return stated or f"{host}-{secrets.token_hex(4)}"


def complete_for_kubectl() -> None:
    """The program `kubectl_complete-ballast`, which kubectl calls with the words that are typed."""
    from extender.cli.completion.shells import answer_kubectl  # noqa: PLC0415

    sys.stdout.write(answer_kubectl(main, sys.argv[1:]))


async def _control(options: Any, metrics_listen: str) -> None:
    from extender.cycle.controller import Controller  # noqa: PLC0415
    from extender.http.app import build_observation_app  # noqa: PLC0415
    from extender.http.server import Address, Listener  # noqa: PLC0415
    from extender.kube.client import Client  # noqa: PLC0415

    async with (
        await Client.connect(options.kubeconfig or None, user_agent="ballast-control") as reader,
        await Client.connect(options.kubeconfig or None, user_agent="ballast-control") as writer,
    ):
        controller = Controller(reader, writer, options)
        app = build_observation_app(controller, controller.is_alive)
        async with Listener(app, Address.parse(metrics_listen)):
            await controller.run()


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run until it ends, SIGTERM or SIGINT; a start that can't be as asked is one sentence."""
    import asyncio  # noqa: PLC0415

    from extender.api.logs import configure  # noqa: PLC0415
    from extender.api.shutdown import run_until_signal  # noqa: PLC0415
    from extender.http.server import ListenError  # noqa: PLC0415
    from extender.http.tls import TlsError  # noqa: PLC0415
    from extender.kube.errors import Misconfigured  # noqa: PLC0415

    configure()
    try:
        asyncio.run(run_until_signal(work))
    except* (ListenError, TlsError, Misconfigured) as errors:
        raise click.ClickException(_first(errors)) from None


def _first(errors: BaseExceptionGroup[Exception]) -> str:
    """What the first error in the group says, however deep it lies."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
