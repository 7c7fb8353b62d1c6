"""`ballast-webhooks`, or `python -m webhooks`: serves admission reviews until it is stopped."""

import asyncio
import resource
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import structlog

from extender.api import logs
from extender.api.names import SYSTEM_NAMESPACE
from extender.connection_limits import listen
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import DEPARTMENTS, NODE_POOLS, PRIORITY_CLASSES, PROJECTS, TOPOLOGIES
from webhooks import certs
from webhooks.certs import Bundle
from webhooks.connection_limits import PacedConnections
from webhooks.owners.reader import OwnerReader
from webhooks.projects import ProjectIndex
from webhooks.rotation import Schedule
from webhooks.rotator import Folder, Rotator, Served
from webhooks.server import Server

#: Connections (`webhooks.connection_limits`), and some for everything else.
MAX_FILES: Final = 2048

log = structlog.get_logger("webhooks")


@dataclass(slots=True, frozen=True)
class WebhookOptions:
    """Where reviews are served, and where the certificate comes from.

    With `secret`, we keep the certificate in that Secret, renew it, and publish it to the API
    server; `cert_dir` then only holds the files of the running process. Otherwise `cert_dir` is the
    source.
    """

    host: str
    port: int
    cert_dir: Path
    kubeconfig: str | None = None
    secret: str = ""
    configuration: str = "ballast-webhooks"
    schedule: Schedule = field(default_factory=Schedule)
    check_every_s: float = 60.0
    nri_plugin: str = ""


async def serve(options: WebhookOptions) -> None:
    """Serves until SIGTERM or SIGINT; reviews in progress are answered first."""
    projects = ProjectIndex()
    server, context = Server(projects, nri_plugin=options.nri_plugin), certs.server_context()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)

    def use(bundle: Bundle) -> None:
        if options.secret:
            certs.store(bundle, options.cert_dir)
        certs.serve_with(context, options.cert_dir)
        server.bundle = bundle

    connections = PacedConnections(context, registry=server.registry)
    runner = server.runner(connections.middleware)
    async with (
        await Client.connect(options.kubeconfig, user_agent="ballast-webhooks") as client,
        asyncio.TaskGroup() as tasks,
    ):
        server.read_owner = OwnerReader(client.get_raw, registry=server.registry).read
        keeper = await _certificate(client, options, use)
        running = [
            tasks.create_task(keeper.run()),
            *(tasks.create_task(watch) for watch in _watches(client, projects)),
        ]
        await runner.setup()
        assert runner.server is not None
        try:
            connections.open(listen(options.host, options.port), runner.server)
            log.info("serving", host=options.host, port=options.port)
            await stopped.wait()
        finally:
            await connections.close()
            await runner.cleanup()
            for task in running:
                task.cancel()


def _watches(client: Client, projects: ProjectIndex) -> list[Coroutine[Any, Any, None]]:
    """The watches that keep `projects` up to date."""
    return [
        Reflector(client, PROJECTS, projects.deliver).run(),
        Reflector(client, DEPARTMENTS, projects.deliver).run(),
        Reflector(client, NODE_POOLS, projects.deliver).run(),
        Reflector(client, TOPOLOGIES, projects.deliver).run(),
        Reflector(client, PRIORITY_CLASSES, projects.deliver).run(),
    ]


def _allow_connections() -> None:
    """Raise the limit on open files to `MAX_FILES` if allowed: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


async def _certificate(client: Client, options: WebhookOptions, use: Served) -> Rotator | Folder:
    """The keeper of the certificate; its first certificate is in use."""
    if not options.secret:
        certs.load_or_make(options.cert_dir)
        folder = Folder(options.cert_dir, use, options.check_every_s)
        folder.turn()
        return folder
    rotator = Rotator(
        client,
        SYSTEM_NAMESPACE,
        options.secret,
        options.configuration,
        use,
        options.schedule,
        options.check_every_s,
    )
    await rotator.turn()
    return rotator


def _address(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8443")
    return host.strip("[]"), int(port)


@click.command()
@click.option(
    "--listen",
    callback=_address,
    default="0.0.0.0:8443",
    show_default=True,
    help="HOST:PORT of the HTTPS server.",
)
@click.option(
    "--cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder with ca.crt, tls.crt and tls.key; they are made where they are missing.",
)
@click.option(
    "--secret",
    default="",
    help=f"Secret in {SYSTEM_NAMESPACE} in which we keep and renew the certificate ourselves.",
)
@click.option(
    "--configuration",
    default="ballast-webhooks",
    show_default=True,
    help="MutatingWebhookConfiguration that has to trust it.",
)
@click.option("--cert-lifetime", default=90 * 86400.0, show_default=True, help="Seconds.")
@click.option("--cert-overlap", default=120.0, show_default=True, help="Seconds.")
@click.option("--cert-check-every", default=60.0, show_default=True, help="Seconds.")
@click.option(
    "--nri-plugin",
    envvar="BALLAST_NRI_PLUGIN",
    default="",
    help="Pods that share a card start only where this plugin of the container runtime runs.",
)
@click.option("--kubeconfig", help="Default: $KUBECONFIG, else the service account.")
def main(
    listen: tuple[str, int],
    cert_lifetime: float,
    cert_overlap: float,
    cert_check_every: float,
    **given: Any,
) -> None:
    """Serves admission reviews over HTTPS."""
    host, port = listen
    schedule = Schedule(timedelta(seconds=cert_lifetime), timedelta(seconds=cert_overlap))
    logs.configure()
    _allow_connections()
    options = WebhookOptions(host, port, schedule=schedule, check_every_s=cert_check_every, **given)
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
