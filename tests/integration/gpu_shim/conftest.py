"""Fixtures: the native libraries and the fake driver, built once, and a scene for each test."""

import fcntl
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gpu_shim.native.build import build
from gpu_shim.policy.leases import LeaseSettings
from tests.integration.gpu_shim.containers import Scene
from tests.support import fakecuda

#: Leases of tests are a tenth of real ones.
LEASE_NS = 25_000_000


@pytest.fixture(scope="session")
def run_folder(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this run, in which its workers have theirs."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if hasattr(pytestconfig, "workerinput") else base


@pytest.fixture(scope="session")
def native(run_folder: Path) -> Path:
    """A folder with our libraries."""
    return made_once(run_folder, "native", build)


@pytest.fixture(scope="session")
def driver(run_folder: Path) -> Path:
    """A folder with the fake driver's."""
    return made_once(run_folder, "driver", fakecuda.build)


def made_once(base: Path, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that the first of a run's workers to ask for it fills, for all of them."""
    folder = base / name
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
            make(unfinished)
            unfinished.rename(folder)
    return folder


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short path: a socket's may have a hundred bytes."""
    path = Path(tempfile.mkdtemp(prefix="shim-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def scene(place: Path, native: Path, driver: Path) -> AsyncIterator[Scene]:
    """A card, an arbiter, and room for containers."""
    made = Scene(place, native, driver, LeaseSettings(lease_ns=LEASE_NS))
    made.start()
    yield made
    await made.close()
