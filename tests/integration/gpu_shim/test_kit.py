"""The kit for a GPU machine, in its own folder, on the fake driver."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_shim.agent import options
from gpu_shim.kit.make import make
from tests.integration.gpu_shim.containers import Scene
from tests.support.fakecuda import Card
from tests.support.fakecuda.__main__ import CONTEXT_MIB, TOTAL_MIB

#: Kernels of 1 ms each for so many seconds, three at once.
PROGRAM = """\
import ctypes, sys, time
cuda, null = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
context, module, kernel, at = (ctypes.c_void_p() for _ in range(4))
assert not cuda.cuInit(0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(32 << 20))
cuda.cuModuleLoadData(ctypes.byref(module), null)
assert not cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin_1000")
print("ready", flush=True)
ends, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < ends:
    for _ in range(3):
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, null, null, null)
    cuda.cuStreamSynchronize(null)
    n += 3
print(n)
"""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, without the packages for the other Python; its modules are compiled."""
    into = tmp_path_factory.mktemp("kit") / "gpu-kit"
    assert make(into, packages=False) < 5 << 20
    done = subprocess.run([sys.executable, into / "run", "no such part"], check=False)
    assert done.returncode == 2
    return into


@pytest.fixture
def large(scene: Scene) -> Scene:
    """A card with the memory and the contexts of a real one."""
    scene.card = Card(scene.card.path, TOTAL_MIB, CONTEXT_MIB)
    return scene


def environment(scene: Scene, out: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "BALLAST_KIT_DRIVER": str(scene.driver),
        "FAKECUDA_STATE": str(scene.card.path),
        "OUT": str(out),
    }


def run(kit: Path, scene: Scene, out: Path, *arguments: str) -> list[dict[str, Any]]:
    """The lines of its file."""
    command = [sys.executable, str(kit / "run"), *arguments]
    env = environment(scene, out)
    subprocess.run(command, env=env, check=False, cwd="/", timeout=120)
    return [json.loads(line) for line in (out / f"{arguments[0]}.jsonl").read_text().splitlines()]


def test_checks_of_the_driver_and_a_row_run_from_the_folder_alone(
    kit: Path, large: Scene, tmp_path: Path
) -> None:
    lines = run(kit, large, tmp_path, "a", "names", "look-up", "contexts", "row 7", "torch native")
    outcomes = {each["step"]: each["outcome"] for each in lines if "outcome" in each}
    # The fake driver has one function of each library that is in none of our lists.
    assert outcomes["names"] == "failed"
    lacking = [each["value"] for each in lines if each["step"] == "names" and "value" in each]
    assert [told.split(": ")[1] for told in lacking] == ["cuOnlyTheDriver", "nvmlOnlyTheDriver"]
    assert outcomes["look-up"] == outcomes["contexts"] == "passed"
    assert outcomes["row 7"] == "passed"
    values = {each["what"]: each["value"] for each in lines if "what" in each}
    assert values["total that the driver reports"] == "16384 MiB"
    free_mib = 16384 - options.CONTEXT_MIB
    for way in ("plain", "managed", "queued", "physical"):
        value = f"{free_mib} MiB of {free_mib} free, then out of memory"
        assert values[f"{way}: taken of 16384 MiB"] == value
    # There is no PyTorch here, and a step whose program fails does not pass.
    assert outcomes["torch native"] == "failed"


#: Takes 64 MiB at a time until it is refused, once the context has been looked at.
FILLER = """\
import ctypes, time
cuda, context, at = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert not cuda.cuInit(0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
time.sleep(3)
while not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(64 << 20)):
    pass
time.sleep(3)
"""


def test_contexts_above_their_charge_are_corrected_as_on_a_node(
    kit: Path, scene: Scene, tmp_path: Path
) -> None:
    scene.card = Card(scene.card.path, TOTAL_MIB, 2 * CONTEXT_MIB)
    program = tmp_path / "filler.py"
    program.write_text(FILLER)
    job = f"!{sys.executable} {program}"
    done = subprocess.run(
        [sys.executable, "-m", "gpu_shim.kit.contained", "10", f"a=1/2:1:4096:{job}"],
        env=environment(scene, tmp_path) | {"PYTHONPATH": str(kit / "source")},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = {each["what"]: each for each in map(json.loads, done.stdout.splitlines())}
    most_mib = int(told["a: most memory by NVML"]["value"].split()[0])
    assert 4096 - 64 <= most_mib <= 4096
    assert told["a: found"]["value"] == "nothing"


def test_containers_have_their_shares_and_their_memory_is_seen(
    kit: Path, large: Scene, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    job = f"!{sys.executable} {program} 6"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gpu_shim.kit.contained", "8"),
            *(f"a=1/4:1/4:2048:{job}", f"b=3/4:3/4:2048:{job}"),
        ],
        env=environment(large, tmp_path) | {"PYTHONPATH": str(kit / "source")},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = {each["what"]: each for each in map(json.loads, done.stdout.splitlines())}
    shares = [float(told[f"{name}: share held"]["value"].split()[0]) for name in "ab"]
    assert told["a: share held"]["n_samples"] > 0
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert shares[0] < 35
    assert told["a: end"]["value"] == "exit 0"
    assert told["a: most memory by NVML"]["is_good"] is True
