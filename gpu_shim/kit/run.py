#!/usr/bin/env python3
"""`gpu-kit/run a|b|c|d`: compiles modules for this Python, then runs a part. Standard library only.

The kit's packages take precedence over installed ones.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

KIT = Path(__file__).resolve().parent
SOURCE = KIT / "source"
#: Modules in C, and their further sources.
MODULES: dict[str, tuple[str, ...]] = {
    "event_loop": (),
    "handover": ("pages.c", "table.c"),
    "slots": (),
}


def _compile_modules() -> None:
    """Compile missing modules for this Python, beside their sources."""
    native = SOURCE / "gpu_shim" / "native"
    folder = SOURCE / "gpu_shim" / "arbiter" / "fast_path"
    for name, more in MODULES.items():
        made = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
        if made.exists():
            continue
        files = [folder / f"{name}.c", *(native / each for each in more)]
        include = [sysconfig.get_paths()["include"], native, SOURCE]
        command = ["gcc", "-O2", "-fPIC", "-shared", "-pthread", *(f"-I{each}" for each in include)]
        # Atomic: the time of a part may end at any moment.
        fresh = made.with_suffix(".new")
        subprocess.run([*command, "-o", str(fresh), *map(str, files)], check=True)  # noqa: S603
        fresh.replace(made)


def main() -> int:
    """Run the part in a new process with the kit's import path."""
    _compile_modules()
    path = [str(SOURCE), str(KIT / "packages"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, "-m", "gpu_shim.kit.runner", *sys.argv[1:]]
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
