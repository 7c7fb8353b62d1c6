"""The native libraries and the fake driver, built once, and a scene for each test."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpu_shim.native.build import build
from gpu_shim.policy.leases import LeaseSettings
from tests.integration.gpu_shim.containers import Scene
from tests.support import fakecuda

#: Leases of tests are a tenth of real ones.
LEASE_NS = 25_000_000


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our libraries."""
    into = tmp_path_factory.mktemp("native")
    build(into)
    return into


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fake driver's."""
    into = tmp_path_factory.mktemp("driver")
    fakecuda.build(into)
    return into


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
