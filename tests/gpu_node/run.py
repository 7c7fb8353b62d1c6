#!/usr/bin/env python3
"""`gpu-node-kit/run`: sets the paths of the kit's parts and runs the story. Standard library only.

Results go to the terminal and to `results.jsonl` in `$OUT`, logs of what failed to `$OUT/logs`.
"""

import os
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent


def main() -> int:
    """Run the story with the kit's programs and packages."""
    given = os.environ.get("PYTHONPATH", "")
    found = [str(KIT / "bin"), os.environ["PATH"], "/usr/sbin", "/sbin"]
    environment = os.environ | {
        "BALLAST_CONTROLPLANE_BIN": str(KIT / "control"),
        "BALLAST_NODE_BIN": str(KIT / "bin"),
        "BALLAST_CNI_BIN": str(KIT / "cni"),
        "PATH": os.pathsep.join(found),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(KIT / "packages"), given])),
        "PYTHONUNBUFFERED": "1",
    }
    # Where the machine's driver lies is no matter of the node's programs.
    environment.pop("LD_LIBRARY_PATH", None)
    command = [
        sys.executable,
        "-m",
        "tests.gpu_node.story",
        str(KIT / "ballast.tar"),
        *sys.argv[1:],
    ]
    return subprocess.run(command, cwd=KIT / "source", env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
