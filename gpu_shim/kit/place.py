"""Where steps run: our libraries, built once, and the driver."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_shim.cases.containers import Containers
from gpu_shim.native.build import build


def driver() -> Path | None:
    """The folder of the driver to use; None for the machine's own."""
    given = os.environ.get("BALLAST_KIT_DRIVER")
    return Path(given) if given else None


@contextmanager
def containers() -> Iterator[Containers]:
    """Room for containers, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as place:
        libraries = Path(place) / "native"
        build(libraries)
        yield Containers(Path(place), libraries, driver())
