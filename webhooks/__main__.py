"""`ballast-webhooks`, or `python -m webhooks`: serves admission reviews until it is stopped."""

import asyncio
import signal
from pathlib import Path

import click
import structlog
from aiohttp import web

from extender.api import logs
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import PROJECTS
from webhooks import certs
from webhooks.projects import ProjectIndex
from webhooks.server import Server

log = structlog.get_logger("webhooks")


async def serve(host: str, port: int, cert_dir: Path, kubeconfig: str | None) -> None:
    """Serves until SIGTERM or SIGINT; reviews in progress are answered first."""
    bundle = certs.load_or_make(cert_dir)
    projects = ProjectIndex()
    server = Server(projects, bundle)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    runner = server.runner()
    async with (
        await Client.connect(kubeconfig, user_agent="ballast-webhooks") as client,
        asyncio.TaskGroup() as tasks,
    ):
        watch = tasks.create_task(Reflector(client, PROJECTS, projects.deliver).run())
        await runner.setup()
        try:
            context = certs.server_context(cert_dir)
            await web.TCPSite(runner, host, port, ssl_context=context).start()
            log.info("serving", host=host, port=port)
            await stopped.wait()
        finally:
            await runner.cleanup()
            watch.cancel()


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
@click.option("--kubeconfig", help="Else $KUBECONFIG, else the service account of the pod.")
def main(listen: tuple[str, int], cert_dir: Path, kubeconfig: str | None) -> None:
    """Serves admission reviews over HTTPS."""
    host, port = listen
    logs.configure()
    asyncio.run(serve(host, port, cert_dir, kubeconfig))


if __name__ == "__main__":
    main()
