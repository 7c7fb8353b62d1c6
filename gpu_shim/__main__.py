"""`python -m gpu_shim`: the agent of one node, until it is stopped."""

import asyncio
import os
import re
import resource
from collections.abc import Mapping
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import click
import structlog

from extender.api import logs
from extender.api.shutdown import run_until_signal
from extender.kube.errors import Misconfigured
from gpu_shim.agent.inventory_file import InventoryError
from gpu_shim.agent.nvml import NvmlError
from gpu_shim.agent.options import CONTEXT_MIB, AgentOptions
from gpu_shim.policy.leases import LeaseSettings

MS: Final = 1_000_000
_log = structlog.get_logger(__name__)
#: Every option is also an environment variable: --lease-ms is BALLAST_AGENT_LEASE_MS.
ENVIRONMENT: Final = "BALLAST_AGENT"
_OF_SERVICE: Final = re.compile(r"_SERVICE_(HOST|PORT)|_PORT($|_[0-9])", re.ASCII)
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(file_okay=False, path_type=Path)


@click.command(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "auto_envvar_prefix": ENVIRONMENT,
    }
)
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of this node.")
@click.option("--inventory", type=_FILE, help="File that lists the cards. Default: ask NVML.")
@click.option("--nvml", default="", help="NVML's library. Default: libnvidia-ml.so.1, by name.")
@click.option("--state", type=_FOLDER, default="/var/lib/ballast", help="Pods' folders.")
@click.option("--libraries", type=_FOLDER, default="/usr/lib/ballast", help="Our libraries.")
@click.option("--kubeconfig", default="", help="Default: $KUBECONFIG, else the service account.")
@click.option("--listen", default="127.0.0.1:8890", help="Health and metrics.")
@click.option(
    "--mode",
    type=click.Choice(["pool", "off", "strict", "fair"]),
    default="pool",
    help="How GPU time is divided; pool: as the node's GpuNodePool says.",
)
@click.option(
    "--lease-ms",
    type=click.IntRange(10, 10000),
    default=250,
    help="Milliseconds of a lease, with --mode strict or fair.",
)
@click.option(
    "--precision-percent",
    type=click.IntRange(1, 50),
    default=5,
    help="Smallest share of a card's time, with strict or fair.",
)
@click.option(
    "--longest-gap-ms",
    type=click.IntRange(0, 60000),
    default=1000,
    help="Leases shrink so that no pod with a share waits longer; 0: never.",
)
@click.option("--nri", default="", help="The runtime's NRI socket. Default: no runtime.")
@click.option(
    "--deliver",
    "way",
    envvar=f"{ENVIRONMENT}_DELIVER",
    type=click.Choice(["cdi", "environment", "files"]),
    default="cdi",
    help="How cards reach containers: CDI names, NVIDIA's runtime, or files that we mount.",
)
@click.option("--driver", type=_FOLDER, help="With files: the host's folder of libcuda.so.1.")
@click.option(
    "--cdi-kind",
    default="",
    help="With cdi: the kind of the cards' devices. Default: read from the node's specifications.",
)
@click.option(
    "--cards",
    "owner",
    envvar=f"{ENVIRONMENT}_CARDS",
    type=click.Choice(["ours", "plugin"]),
    default="ours",
    help="What assigns whole cards: the agent, or NVIDIA's plugin (then with holder pods).",
)
@click.option(
    "--kubelet",
    type=_FILE,
    default="/var/lib/kubelet/pod-resources/kubelet.sock",
    help="With plugin: kubelet's PodResources socket.",
)
@click.option(
    "--namespace", envvar="POD_NAMESPACE", default="ballast-node", help="Namespace of holder pods."
)
@click.option("--holder-image", default="registry.k8s.io/pause:3.10", help="Image of holder pods.")
@click.option(
    "--audit/--no-audit",
    "is_audited",
    envvar=f"{ENVIRONMENT}_AUDIT",
    default=True,
    help="Look for pods beyond their bounds.",
)
@click.option(
    "--evict/--no-evict",
    "is_evicting",
    envvar=f"{ENVIRONMENT}_EVICT",
    default=False,
    help="Evict the pods that are found.",
)
@click.option(
    "--evict-after-s",
    type=click.FloatRange(0, 3600),
    default=30.0,
    help="Seconds for which every check must find a violation before a pod is evicted.",
)
@click.option(
    "--restart-unprotected/--no-restart-unprotected",
    "is_restarting",
    envvar=f"{ENVIRONMENT}_RESTART_UNPROTECTED",
    default=False,
    help="End containers that started without the library, if kubelet starts them again.",
)
@click.option(
    "--spared-namespaces",
    default="gpu-operator,nvidia-gpu-operator,kube-system",
    help="Pods of these are neither reported, restarted nor evicted: DCGM, NVIDIA's operator.",
)
@click.option(
    "--context-mib",
    type=click.IntRange(0, 4096),
    default=CONTEXT_MIB,
    help="What a process is charged for each CUDA context; corrected by the driver's figures.",
)
def main(
    listen: str, lease_ms: int, precision_percent: int, longest_gap_ms: int, **given: Any
) -> None:
    """Enforce the memory and GPU-time limits of this node's containers."""
    logs.configure()
    for name, meant in unknown_settings(os.environ).items():
        _log.warning("setting not known", setting=name, did_you_mean=meant)
    host, _, port = listen.rpartition(":")
    settings = LeaseSettings(lease_ms * MS, Fraction(precision_percent, 100), longest_gap_ms * MS)
    options = AgentOptions(host=host, port=int(port), settings=settings, **given)
    try:
        asyncio.run(run_until_signal(serve(options)))
    except* (InventoryError, Misconfigured, NvmlError) as errors:
        raise click.ClickException(str(errors.exceptions[0])) from None


def unknown_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Unknown variables with the prefix of settings, each with the closest known one, or "".
    Variables that kubelet creates for Services are skipped."""
    known: set[str] = set()
    for option in main.params:
        stated = (option.envvar,) if isinstance(option.envvar, str) else ()
        known.update(stated, (f"{ENVIRONMENT}_{str(option.name).upper()}",))
    return {
        name: next(iter(get_close_matches(name, known, n=1)), "")
        for name in given
        if name.startswith(f"{ENVIRONMENT}_") and name not in known and not _OF_SERVICE.search(name)
    }


async def serve(options: AgentOptions) -> None:
    """Run the agent; never returns."""
    # Compiled modules are needed only to run, not for the help.
    from gpu_shim.agent.program import Program, alone, cards_of  # noqa: PLC0415

    # Each process of each pod needs one descriptor here.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    await alone(options)
    await Program(options, *await cards_of(options)).run()


if __name__ == "__main__":
    main()
