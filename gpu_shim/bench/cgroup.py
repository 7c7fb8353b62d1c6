"""The driver's own limit, tried on a control group made for it and removed again."""

import os
from pathlib import Path
from typing import Final

import pynvml

from gpu_shim.agent.driver_memory_limits import GROUPS, MIB, NoLimitsError, set_in_driver
from gpu_shim.bench.stage import BenchStage, StageOutcome, StageTenant

CAP_MIB: Final = 4096


async def try_limit(stage: BenchStage) -> str:
    """What a program without the shim could take in a group with a limit, or why none was set."""
    if os.geteuid() != 0:
        return "skipped: needs root"
    group = GROUPS / f"ballast-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        return f"skipped: no control group can be made here ({error.strerror})"
    own = _own_group()
    try:
        pynvml.nvmlInit()
        set_in_driver(stage.uuid, f"/{group.name}", CAP_MIB * MIB)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        job = {"do": "fill", "way": "plain", "step_mib": 64}
        return _told((await stage.play([StageTenant("a", job)], "none"))["a"])
    except NoLimitsError as error:
        return f"skipped: the driver has no such limit ({error})"
    except pynvml.NVMLError_LibraryNotFound:
        return "skipped: this machine has no NVML"
    except pynvml.NVMLError as error:
        return f"failed: {error}"
    finally:
        (own / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def _told(outcome: StageOutcome) -> str:
    if not outcome.answers:
        return f"of {CAP_MIB} MiB: the program was ended by the driver"
    return f"of {CAP_MIB} MiB: {outcome.answers[0]['taken_mib']} MiB were taken"


def _own_group() -> Path:
    """Where this process is now."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return GROUPS / line.removeprefix("0::").lstrip("/")
    return GROUPS
