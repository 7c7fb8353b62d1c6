"""`python -m gpu_shim.bench`: runs the rows on the GPU of this machine."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Final

import click
import pynvml
from rich.console import Console
from rich.table import Table

from gpu_shim.bench.figures import Line
from gpu_shim.bench.rows import ROWS
from gpu_shim.bench.stage import Bench, BenchStage, StageTenant
from gpu_shim.cases.containers import Containers, NoGpuError
from gpu_shim.native.build import build, compile_c
from gpu_shim.policy.leases import LeaseSettings

HERE: Final = Path(__file__).resolve().parent
#: Rounds of the computing kernel for a first estimate of the card's speed.
_FIRST_LOOK: Final = 200_000
_LOOK_S: Final = 0.5
_STEP_S: Final = 0.005
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("rows", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--seconds", default=30.0, show_default=True, help="Length of one measurement.")
@click.option("--lease-ms", default=250, show_default=True, help="Length of a lease.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write figures here too.")
@click.option("--driver", type=_FOLDER, help="Folder of another libcuda.so.1.")
def main(
    rows: tuple[int, ...], seconds: float, lease_ms: int, report: Path | None, driver: Path | None
) -> None:
    """Run ROWS, or all: 1 cost alone, 2 pairs, 3 idle, 4 crowds, 5 ways to launch, 6 latency,
    7 memory, 8 failures, 10 hand-overs, 11 many programs at once, 12 an arbiter at rest. Containers
    are folders; no setting of the GPU is changed and no root is needed."""
    try:
        about, lines = asyncio.run(measure(rows or tuple(ROWS), seconds, lease_ms, driver))
    except NoGpuError as error:
        click.echo(f"skipped: {error}")
        return
    _show(about, lines)
    if report is not None:
        figures = [asdict(line) | {"bar": line.bar, "is_good": line.is_good} for line in lines]
        report.write_text(json.dumps({"machine": about, "figures": figures}, indent=1))


async def measure(
    rows: Sequence[int], seconds: float, lease_ms: int, driver: Path | None
) -> tuple[dict[str, str], list[Line]]:
    """The machine, and the lines of these rows; raises NoGpuError."""
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as place:
        libraries, loop = Path(place) / "native", Path(place) / "launches.so"
        build(libraries)
        compile_c(loop, [HERE / "launches.c"])
        containers = Containers(Path(place), libraries, driver)
        stage = BenchStage(containers, containers.uuid())
        step = await calibrate(stage)
        bench = Bench(stage, seconds, LeaseSettings(lease_ms * 1_000_000), step, loop)
        lines = [line for row in rows for line in await ROWS[row](bench)]
        return _machine(stage.uuid, driver), lines


async def calibrate(stage: BenchStage) -> int:
    """Rounds of the computing kernel that take about 5 ms; raises ValueError if they do not."""
    step = max(1, round(_FIRST_LOOK * _STEP_S / await _takes_s(stage, _FIRST_LOOK)))
    took_s = await _takes_s(stage, step)
    if not _STEP_S / 2 <= took_s <= _STEP_S * 2:
        expected = f"instead of about {1000 * _STEP_S:g} ms"
        raise ValueError(f"a kernel of {step} rounds took {1000 * took_s:.3f} ms {expected}")
    return step


async def _takes_s(stage: BenchStage, rounds: int) -> float:
    """How long such a kernel takes by the card's clock, alone and without the shim."""
    job = {"do": "rate", "kernel": "burn", "amount": rounds, "at_once": 1, "seconds": _LOOK_S}
    answer = (await stage.play([StageTenant("a", job)], "none"))["a"].answers[0]
    return float(median(end - start for start, end in answer["runs"])) / 1e9


def _machine(uuid: str, driver: Path | None) -> dict[str, str]:
    """The machine on which the lines were measured."""
    if driver is not None:
        return {"driver": str(driver)}
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    clock = pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_SM)
    return {
        "card": str(pynvml.nvmlDeviceGetName(device)),
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        "CUDA": str(pynvml.nvmlSystemGetCudaDriverVersion_v2()),
        "SM clock, most": f"{clock} MHz",
        "compute mode": str(pynvml.nvmlDeviceGetComputeMode(device)),
        "MIG": _mig(device),
    }


def _mig(device: object) -> str:
    try:
        return "on" if pynvml.nvmlDeviceGetMigMode(device)[0] else "off"
    except pynvml.NVMLError_NotSupported:
        return "not supported"


def _show(about: dict[str, str], lines: Sequence[Line]) -> None:
    table = Table("row", "what", "measured", "bar")
    for line in lines:
        bar = f"{line.bar}: missed" if line.is_good is False else line.bar
        table.add_row(str(line.row), line.what, line.value, bar)
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in about.items()))
    console.print(table)


if __name__ == "__main__":
    main()
