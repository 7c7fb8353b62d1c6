"""`python -m tests.support.node build | up`: the node's programs, or a cluster with one node."""

import shlex
import signal
import sys
import threading
from pathlib import Path

import click

from tests.support.controlplane.process import ControlPlaneError
from tests.support.node import NodeControlPlane, NodeOptions, RealNode, missing_needs
from tests.support.node.binaries import find_node_binaries


@click.group()
def main() -> None:
    """Run a real node beside a control plane, or only build its programs."""


@main.command()
def build() -> None:
    """Build missing programs; says why if this machine cannot run a node."""
    missing = missing_needs()
    if missing:
        click.echo("no real node here: " + "; ".join(missing))
        return
    click.echo(f"node programs: {find_node_binaries()}")


@main.command()
@click.option("--image", "images", multiple=True, type=click.Path(exists=True, path_type=Path))
def up(images: tuple[Path, ...]) -> None:
    """Start a control plane with one real node, print the KUBECONFIG line, and run until Ctrl-C."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with NodeControlPlane() as plane:
        plane.start_scheduler()
        with RealNode(plane, NodeOptions()) as node:
            for image in images:
                node.import_image(image)
            click.echo(f"export KUBECONFIG={shlex.quote(plane.kubeconfig)}")
            click.echo(f"# kubectl: {plane.program('kubectl')}")
            click.echo(f"# logs: {plane.logs}; Ctrl-C ends it")
            ended.wait()


if __name__ == "__main__":
    try:
        main()
    except ControlPlaneError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
