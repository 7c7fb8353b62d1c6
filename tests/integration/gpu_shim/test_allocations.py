"""Random allocations of several threads leave the account exactly as they found it."""

import asyncio
import os
from pathlib import Path

import pytest

from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.home import furnish
from gpu_shim.native.build import build
from tests.integration.gpu_shim.containers import Scene
from tests.integration.gpu_shim.test_pacing import compiled
from tests.support.fakecuda import UUID

#: BALLAST_FUZZ=1000000 for a long run.
N_TURNS = int(os.environ.get("BALLAST_FUZZ", "2000"))
CAP_MIB = 600


@pytest.mark.timeout(180 + N_TURNS // 100)
@pytest.mark.parametrize("tool", ["", "thread", "address,undefined"])
async def test_what_threads_take_and_free_in_every_way_is_given_back(
    scene: Scene, tmp_path: Path, tool: str
) -> None:
    flags = (f"-fsanitize={tool}",) if tool else ()
    libraries, names = tmp_path / "lib", tmp_path / "names.map"
    # A sanitizer looks up functions of its own by dlsym, which must be libc's.
    names.write_text("{ global: cu*; nvml*; local: *; };")
    build(libraries, flags=[*flags, f"-Wl,--version-script={names}"])
    program = compiled("allocate.c", tmp_path, libraries, "-pthread", *flags)
    furnish(scene.home("a"), libraries, (ContainerCard(UUID, CAP_MIB),))
    scene.container("a", cap_mib=CAP_MIB)
    environment = {
        "FAKECUDA_STATE": str(scene.card.path),
        "LD_LIBRARY_PATH": f"{scene.home('a') / 'lib'}:{scene.driver}",
        "TSAN_OPTIONS": "exitcode=66",
        "ASAN_OPTIONS": "exitcode=66:detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:exitcode=66",
    }
    pipe = asyncio.subprocess.PIPE
    for seed in range(3):
        done = await asyncio.create_subprocess_exec(
            *(program, "6", str(N_TURNS), str(seed)), env=environment, stdout=pipe, stderr=pipe
        )
        out, errors = await done.communicate()
        assert done.returncode == 0, errors.decode()[:5000]
        assert out.decode() == f"charged 0 of {CAP_MIB}, failed 0\n"
    assert scene.card.used_mib == 0
