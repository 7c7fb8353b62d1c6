"""The libraries on aarch64: cross-compiled, and run in a user-mode emulator."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_shim.home import LIBRARIES, preloaded
from gpu_shim.native.build import build
from tests.integration.gpu_shim.containers import Scene
from tests.integration.gpu_shim.test_valgrind import HOST
from tests.support import fakecuda

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SYSTEM = "/usr/aarch64-linux-gnu"


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with our libraries and the fake driver's, for aarch64."""
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no {COMPILER} (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)")
    into = tmp_path_factory.mktemp("arm")
    build(into / "native", COMPILER)
    fakecuda.build(into / "driver", COMPILER)
    return into


@pytest.mark.parametrize("library", LIBRARIES)
def test_nothing_newer_than_glibc_2_17_is_needed(arm: Path, library: str) -> None:
    objdump = COMPILER.replace("gcc", "objdump")
    told = subprocess.run(
        [objdump, "-T", arm / "native" / library], capture_output=True, text=True, check=True
    ).stdout
    assert {word for word in told.split() if "GLIBC_" in word} <= {"GLIBC_2.17", "(GLIBC_2.17)"}


async def test_a_program_has_its_cap_and_its_turns(scene: Scene, arm: Path) -> None:
    if shutil.which(EMULATOR) is None:
        pytest.skip(f"no {EMULATOR} (Debian: qemu-user)")
    scene.container("a", "1/2", "1/2")
    libraries, program = arm / "native", scene.root / "host"
    home = scene.home("a") / "lib"
    for each in LIBRARIES:
        shutil.copy(libraries / each, home)
    subprocess.run([COMPILER, "-std=gnu11", "-o", program, HOST, home / "libcuda.so.1"], check=True)
    view = {
        "FAKECUDA_STATE": str(scene.card.path),
        "LD_LIBRARY_PATH": str(arm / "driver"),
        "LD_PRELOAD": " ".join(preloaded(scene.home("a"))),
    }
    given = [word for name, value in view.items() for word in ("-E", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        EMULATOR, "-L", SYSTEM, *given, str(program), "alone"
    )
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert scene.used_mib("a") == 0
    assert sum(run.tag == 0 for run in scene.card.runs()) == 200
