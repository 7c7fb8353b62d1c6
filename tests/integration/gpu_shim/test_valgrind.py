"""The libraries in a program under valgrind."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_shim.home import preloaded
from tests.integration.gpu_shim.containers import Scene

HOST = Path(__file__).parent / "host.c"


async def test_valgrind_finds_no_error_and_no_leak(scene: Scene, tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed (Debian: apt-get install valgrind)")
    scene.container("a")
    libraries = scene.home("a") / "lib"
    program, report = tmp_path / "host", tmp_path / "report"
    subprocess.run(
        ["gcc", "-std=gnu11", "-g", "-o", program, HOST, libraries / "libcuda.so.1"], check=True
    )
    view = {
        "PATH": os.environ["PATH"],
        "FAKECUDA_STATE": str(scene.card.path),
        "LD_LIBRARY_PATH": str(scene.driver),
        "LD_PRELOAD": " ".join(preloaded(scene.home("a"))),
    }
    watched = (
        *(valgrind, "--error-exitcode=99", "--leak-check=full", "--trace-children=yes"),
        *("--errors-for-leak-kinds=definite", f"--log-file={report}.%p", str(program)),
    )
    process = await asyncio.create_subprocess_exec(*watched, env=view)
    status = await asyncio.wait_for(process.wait(), 120)
    reports = [each.read_text() for each in tmp_path.glob("report.*")]
    assert status == 0, "\n".join(reports)
    assert len(reports) == 2
    assert all("ERROR SUMMARY: 0 errors" in each for each in reports), "\n".join(reports)
