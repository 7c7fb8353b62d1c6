"""The environment of steps: our libraries, built once, and the driver."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_shim.agent.nvml import Nvml, NvmlError
from gpu_shim.cases.containers import Containers
from gpu_shim.kit.results import Result, tell
from gpu_shim.native.build import build


def driver() -> Path | None:
    """The folder of the driver to use; None: the machine's own."""
    given = os.environ.get("BALLAST_KIT_DRIVER")
    return Path(given) if given else None


def open_nvml() -> Nvml | None:
    """The driver's NVML; None, with a result that says why, if it cannot be opened."""
    folder = driver()
    try:
        return Nvml(str(folder / "libnvidia-ml.so.1") if folder else "")
    except NvmlError as error:
        tell(Result("NVML", str(error), 0))
        return None


@contextmanager
def containers() -> Iterator[Containers]:
    """A temporary place for containers."""
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as place:
        libraries = Path(place) / "native"
        build(libraries)
        yield Containers(Path(place), libraries, driver())
