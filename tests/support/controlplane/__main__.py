"""`python -m tests.support.controlplane up | build | env`: runs or builds a control plane."""

import shlex
import signal
import sys
import threading
from pathlib import Path

import click

from tests.support.controlplane.binaries import build_other_binaries, find_binaries
from tests.support.controlplane.builder import OTHER_RELEASES
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, apply_crds
from tests.support.controlplane.process import ControlPlaneError

CRDS = Path(__file__).resolve().parents[3] / "manifests" / "base" / "crds"


@click.group()
def main() -> None:
    """Run a real control plane on loopback, or only build its programs."""


@main.command()
@click.option("--nodes", default=0, show_default=True, help="Simulated GPU nodes to create.")
@click.option("--gpus", default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--scheduler-config",
    type=click.Path(exists=True, path_type=Path),
    help="KubeSchedulerConfiguration to run kube-scheduler with; stock if not given.",
)
@click.option("--extender-url", default="", help="Address of the configuration's extender.")
@click.option("--keep", is_flag=True, help="Keep certificates, logs and data at the end.")
def up(
    nodes: int, gpus: int, scheduler_config: Path | None, extender_url: str, *, keep: bool
) -> None:
    """Start all components, print the KUBECONFIG line, and run until Ctrl-C."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    plane = ControlPlane()
    try:
        plane.start()
        apply_crds(plane, CRDS)
        plane.start_scheduler(scheduler_config, extender_url=extender_url)
        plane.start_kwok()
        if nodes:
            Cluster(plane, "default", scheduler_config).add_gpu_nodes(nodes, gpus)
        click.echo(f"export KUBECONFIG={shlex.quote(plane.kubeconfig)}")
        click.echo(f"# kubectl: {plane.program('kubectl')}")
        click.echo(f"# logs and the audit log: {plane.logs}")
        click.echo("# Ctrl-C ends it")
        ended.wait()
    finally:
        plane.stop(is_kept=keep, with_data=keep)
        if keep:
            click.echo(f"# kept: {plane.work}")


@main.command()
@click.option("--others", is_flag=True, help="Those of other Kubernetes releases instead.")
def build(*, others: bool) -> None:
    """Build missing programs, and print the paths of all."""
    made = map(build_other_binaries, OTHER_RELEASES) if others else (find_binaries(),)
    for programs in made:
        for folder in sorted({path.parent for path in programs.values()}):
            held = ", ".join(name for name, path in programs.items() if path.parent == folder)
            click.echo(f"{held}: {folder}")


@main.command()
def env() -> None:
    """Print shell lines that put the programs on the PATH."""
    folders = dict.fromkeys(str(path.parent) for path in find_binaries().values())
    click.echo(f'export PATH={shlex.quote(":".join(folders))}:"$PATH"')


if __name__ == "__main__":
    try:
        main()
    except ControlPlaneError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
