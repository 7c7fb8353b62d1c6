"""The memory table under threads and the client under noise, with sanitizers."""

import os
import subprocess
from pathlib import Path

import pytest

from gpu_shim.native.build import HERE

RACE = Path(__file__).parent / "race.c"
FUZZ = Path(__file__).parent / "fuzz.c"
FLAGS = ["-std=c11", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{HERE}"]
#: BALLAST_FUZZ=1000000 for a long run.
N_TURNS = int(os.environ.get("BALLAST_FUZZ", "5000"))


@pytest.mark.parametrize("tool", ["thread", "address,undefined"])
def test_the_table_is_exact_under_threads_and_clean_under_sanitizers(
    tool: str, tmp_path: Path
) -> None:
    program = tmp_path / "race"
    subprocess.run(
        ["gcc", *FLAGS, f"-fsanitize={tool}", "-o", program, RACE, HERE / "table.c"], check=True
    )
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "over 0, left 0" in done.stdout


def test_noise_from_the_arbiters_side_harms_nothing(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    (tmp_path / "run").mkdir()
    subprocess.run(
        ["gcc", *FLAGS, "-fsanitize=address,undefined", "-o", program, FUZZ, HERE / "table.c"],
        check=True,
    )
    done = subprocess.run(
        [program, tmp_path, str(N_TURNS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files left open 0" in done.stdout
