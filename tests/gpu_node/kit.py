"""`python -m tests.gpu_node.kit DIR`: a folder for a machine that has a GPU and no package index.

The machine has root, Linux 5.11 with cgroups of version 2, NVIDIA's driver, gcc, CPython 3.12 with
PyTorch, and util-linux; all else is in the folder. There, `DIR/run` runs what `story` shows.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpu_shim.kit.make import fetch
from tests.support import nvidia
from tests.support.controlplane.binaries import find_binaries
from tests.support.node.binaries import SOURCES, find_node_binaries
from tests.support.node.needs import PLUGINS, plugin_folder

ROOT: Final = Path(__file__).resolve().parents[2]
#: Packages of the harness, in the versions of the lock file.
PACKAGES: Final = (
    "aiohappyeyeballs", "aiohttp", "aiosignal", "attrs", "cffi", "click", "cryptography",
    "frozenlist", "idna", "markdown-it-py", "mdurl", "msgspec", "multidict", "orjson", "propcache",
    "pycparser", "pygments", "pyyaml", "rich", "structlog", "typing-extensions", "yarl",
)  # fmt: skip
#: Programs of distributions; each goes with the libraries that it loads, but for the C library.
TOOLS: Final = ("ip", "nft", "runc")
_SOURCES: Final = ("extender", "gpu_shim", "manifests", "tests", "webhooks")
_BUILT: Final = {".so", ".pyc", ".o"}
_OF_LIBC: Final = ("ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "linux-vdso")
#: It sets the libraries for one program only.
_WRAPPER: Final = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/../libraries exec "$here/../tools/{name}" "$@"
"""
_ABSENT: Final = "#!/bin/sh\necho 'this program is not in the kit' >&2\nexit 1\n"


def make(into: Path) -> int:
    """Write the folder anew; returns its size in bytes. Builds what is missing (minutes)."""
    shutil.rmtree(into, ignore_errors=True)
    for name in _SOURCES:
        shutil.copytree(ROOT / name, into / "source" / name, ignore=_is_built)
    _copy_programs(into)
    fetch(into / "packages", PACKAGES)
    _make_image(into / "ballast.tar")
    shutil.copy2(Path(__file__).with_name("run.py"), into / "run")
    (into / "run").chmod(0o755)
    return sum(path.stat().st_size for path in into.rglob("*") if path.is_file())


def _is_built(folder: str, names: list[str]) -> set[str]:
    del folder
    return {each for each in names if each == "__pycache__" or Path(each).suffix in _BUILT}


def _copy_programs(into: Path) -> None:
    control, node = into / "control", into / "bin"
    for folder in (control, node, into / "tools", into / "libraries", into / "cni"):
        folder.mkdir()
    for name, path in find_binaries().items():
        if name == "kwok":
            _write_program(control / name, _ABSENT)
        else:
            shutil.copy2(path, control / name)
    plugin = nvidia.PROGRAMS
    for folder, names in ((find_node_binaries(), SOURCES), (plugin.build(), plugin.sources)):
        for name in names:
            shutil.copy2(folder / name, node / name)
    plugins = plugin_folder()
    if plugins is None:
        raise FileNotFoundError(
            "no CNI plugins; on Debian: apt-get install containernetworking-plugins"
        )
    for name in PLUGINS:
        shutil.copy2(plugins / name, into / "cni" / name)
    for name in TOOLS:
        copy_tool(name, into)


def copy_tool(name: str, into: Path) -> None:
    """Copy a program of this machine, with its libraries, so that `bin` has it."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"no program {name} on the PATH")
    shutil.copy2(found, into / "tools" / name)
    _write_program(into / "bin" / name, _WRAPPER.format(name=name))
    listed = subprocess.run(["ldd", found], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        words = line.split()
        if "=>" in words and not words[0].startswith(_OF_LIBC):
            shutil.copy2(words[2], into / "libraries" / words[0])


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _make_image(archive: Path) -> None:
    command = [sys.executable, "-m", "manifests.image", f"--output={archive}"]
    subprocess.run(command, cwd=ROOT, check=True)


def main(arguments: Sequence[str]) -> None:
    """Create the folder and print its size."""
    into = Path(arguments[0])
    size = make(into)
    print(f"{into}: {size / (1 << 20):.0f} MiB; there: {into.name}/run")


if __name__ == "__main__":
    main(sys.argv[1:])
