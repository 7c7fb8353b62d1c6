"""The memory table under threads, with the tools that see what tests do not."""

import subprocess
from pathlib import Path

import pytest

from gpu_shim.native.build import HERE

RACE = Path(__file__).parent / "race.c"


@pytest.mark.parametrize("tool", ["thread", "address,undefined"])
def test_the_table_is_exact_under_threads_and_clean_under_sanitizers(
    tool: str, tmp_path: Path
) -> None:
    program = tmp_path / "race"
    flags = ["-std=c11", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{HERE}"]
    subprocess.run(
        ["gcc", *flags, f"-fsanitize={tool}", "-o", program, RACE, HERE / "table.c"], check=True
    )
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "over 0, left 0" in done.stdout
