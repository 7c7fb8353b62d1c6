"""The event loop and the connections under random messages, built with sanitizers."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gpu_shim.kit.run import MODULES
from gpu_shim.native.build import HERE
from tests.integration.gpu_shim.test_connections import N_MESSAGES

ROOT = HERE.parents[1]
FAST_PATH = Path("gpu_shim/arbiter/fast_path")
TESTS = (
    "tests/integration/gpu_shim/test_event_loop.py",
    "tests/integration/gpu_shim/test_connections.py::test_noise_ends_its_own_connection_and_nothing_else",
)
RUNTIMES = {"thread": ("libtsan.so",), "address,undefined": ("libasan.so", "libubsan.so")}
FLAGS = ("-shared", "-fPIC", "-O1", "-g", "-fwrapv", "-fno-omit-frame-pointer")


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the modules in C."""
    into = tmp_path_factory.mktemp("translated")
    for module in MODULES:
        source = FAST_PATH / f"{module}.pyx"
        command = [sys.executable, "-m", "cython", "-3", str(source), "-o", f"{into / module}.c"]
        subprocess.run(command, cwd=ROOT, check=True)
    return into


def build(translated: Path, tree: Path, tool: str) -> None:
    """The compiled modules in this copy of the tree, with a sanitizer."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    includes = (f"-I{HERE}", f"-I{sysconfig.get_path('include')}")
    for module, sources in MODULES.items():
        output = tree / FAST_PATH / f"{module}{suffix}"
        more = [str(HERE / name) for name in sources]
        command = ["gcc", *FLAGS, f"-fsanitize={tool}", *includes, f"{translated / module}.c"]
        subprocess.run([*command, *more, "-o", str(output)], check=True)


def runtimes(tool: str) -> str:
    """What must be loaded before the interpreter, which is built without."""
    paths = (
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, check=True)
        for name in RUNTIMES[tool]
    )
    return " ".join(done.stdout.decode().strip() for done in paths)


@pytest.mark.timeout(600 + N_MESSAGES // 200)
@pytest.mark.parametrize("tool", list(RUNTIMES))
def test_threads_do_not_race_and_nothing_is_touched_that_is_not_ours(
    tool: str, translated: Path, tmp_path: Path
) -> None:
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    for package in ("gpu_shim", "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    build(translated, tmp_path, tool)
    options = f"exitcode=66:detect_leaks=0:log_path={tmp_path / 'report'}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *TESTS],
        cwd=tmp_path,
        env=os.environ
        | {
            "LD_PRELOAD": runtimes(tool),
            "PYTHONPATH": str(tmp_path),
            "TSAN_OPTIONS": options,
            "ASAN_OPTIONS": options,
            "UBSAN_OPTIONS": f"log_path={tmp_path / 'report'}:print_stacktrace=1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    reports = [each.read_text() for each in tmp_path.glob("report*")]
    assert not reports, reports[0][:5000]
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100%" in done.stdout
