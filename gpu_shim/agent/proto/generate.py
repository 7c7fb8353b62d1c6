"""Generates the `*_pb2` modules of this folder from its `.proto` files, with grpcio-tools."""

import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
NAMES: Final = ("nri", "podresources", "ttrpc")
_ROOT: Final = HERE.parents[2]
_HEAD: Final = '# ruff: noqa\n# fmt: off\n# mypy: disable-error-code="type-arg"\n'


def generate(into: Path) -> None:
    """Write the modules and their type stubs below `into`, at their paths within the project."""
    files = [str((HERE / f"{name}.proto").relative_to(_ROOT)) for name in NAMES]
    kinds = (f"--python_out={into}", f"--pyi_out={into}")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{_ROOT}", *kinds, *files]
    subprocess.run(command, check=True, cwd=_ROOT)  # noqa: S603
    for made in sorted(into.glob("gpu_shim/agent/proto/*_pb2.py*")):
        made.write_text(_HEAD + made.read_text())


if __name__ == "__main__":
    generate(_ROOT)
