"""The three layers of our image: Debian with Python, the locked packages, and Ballast itself.

Each is made only when what it depends on has changed, and kept in a cache outside the tree. The
lowest two change with Debian's archive (rarely, and on request) and with `requirements.lock`.
"""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from manifests.image.archive import Entry, Layer, Member, folder_entries, write_layer
from manifests.image.debian import SUITE, is_kept, write_root_files
from manifests.image.python import (
    PACKAGES,
    PYTHON,
    install_locked,
    install_ours,
)
from manifests.image.requirements import runtime_requirements

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).resolve().parent
#: 2026-01-01; every file carries this time, or its own if that is older.
EPOCH_S: Final = int(os.environ.get("SOURCE_DATE_EPOCH", "1767225600"))
SITE: Final = f"usr/local/lib/python{PYTHON}/dist-packages"
LIBRARIES: Final = "usr/lib/ballast"
KEPT: Final = 4
FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\n"
    "ballast:x:65532:65532:ballast:/nonexistent:/sbin/nologin\n",
    "etc/group": "root:x:0:\nballast:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
FOLDERS: Final = {"dev": 0o755, "proc": 0o755, "run": 0o755, "sys": 0o755, "tmp": 0o1777}
START: Final = (
    "#!/usr/bin/python3 -I\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
)
PROGRAMS: Final = {"ballast": "extender.__main__", "ballast-webhooks": "webhooks.__main__"}


class LayerCache:
    """Finished layers by the hash of what they were made from."""

    def __init__(self, folder: Path, *, is_fresh: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._is_fresh = is_fresh

    def get(self, kind: str, key: str, write: Callable[[Path], Layer]) -> Layer:
        """The layer of this kind and key, made by `write` if it is not there."""
        path = self._folder / f"{kind}-{key[:24]}.tar.gz"
        facts = path.with_suffix(".json")
        if facts.exists() and path.exists() and not self._is_fresh:
            os.utime(facts)
            return Layer(**(json.loads(facts.read_text()) | {"path": path}))
        partial = path.with_suffix(".partial")
        made = write(partial)
        partial.rename(path)
        facts.write_text(json.dumps(asdict(made) | {"path": ""}))
        self._forget_old(kind)
        return Layer(path, made.digest, made.diff_id, made.size, made.is_compressed)

    def _forget_old(self, kind: str) -> None:
        facts = sorted(self._folder.glob(f"{kind}-*.json"), key=lambda each: -each.stat().st_mtime)
        for each in facts[KEPT:]:
            each.unlink()
            each.with_suffix(".gz").unlink(missing_ok=True)


def make_layers(cache: LayerCache, architecture: str) -> tuple[Layer, ...]:
    """The layers from the bottom."""
    requirements = runtime_requirements(ROOT / "pyproject.toml", ROOT / "requirements.lock")
    system = f"{SUITE} {architecture} {EPOCH_S} {_digest([HERE])}"
    locked = f"{architecture} {EPOCH_S} {requirements} {_digest([HERE])}"
    sources = [ROOT / each for each in (*PACKAGES, "setup.py", "pyproject.toml", "README.md")]
    ours = f"{architecture} {EPOCH_S} {_digest([HERE, *sources])}"
    return (
        cache.get("debian", _key(system), lambda path: _write_debian(path, architecture)),
        cache.get("packages", _key(locked), lambda path: _write_locked(path, requirements)),
        cache.get("ballast", _key(ours), _write_ours),
    )


def _write_debian(target: Path, architecture: str) -> Layer:
    with tempfile.TemporaryDirectory(prefix="ballast-image-") as work:
        root = write_root_files(Path(work) / "root.tar", architecture)
        with tarfile.open(root) as tar:
            return write_layer(target, _debian_entries(tar, Path(work) / "compiled"), EPOCH_S)


def _debian_entries(tar: tarfile.TarFile, work: Path) -> Iterator[Entry | Member]:
    """What is kept of Debian's files, what it lacks, and the standard library compiled."""
    for member in sorted(tar, key=lambda each: each.name):
        if not is_kept(member):
            continue
        member.mtime = min(int(member.mtime), EPOCH_S)
        file = tar.extractfile(member) if member.isreg() else None
        content = file.read() if file is not None else b""
        if member.name.endswith(".py"):
            source = work / member.name
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes(content)
        yield member, content
    yield from (Entry(path, 0o644, text.encode()) for path, text in FILES.items())
    yield Entry("usr/bin/python3", link=f"python{PYTHON}")
    yield from (Entry(path, mode) for path, mode in FOLDERS.items())
    _compile(work)
    for path in sorted(work.rglob("*.pyc")):
        yield Entry(str(path.relative_to(work)), 0o644, path)


def _write_locked(target: Path, requirements: str) -> Layer:
    with tempfile.TemporaryDirectory(prefix="ballast-image-") as work:
        root = Path(work) / "root"
        install_locked(root / SITE, requirements)
        _compile(root)
        return write_layer(target, folder_entries(root, ""), EPOCH_S)


def _write_ours(target: Path) -> Layer:
    with tempfile.TemporaryDirectory(prefix="ballast-image-") as work:
        root = Path(work) / "root"
        install_ours(ROOT, root / SITE, root / LIBRARIES, EPOCH_S)
        _compile(root)
        programs = [
            Entry(f"usr/local/bin/{name}", 0o755, START.format(module=module).encode())
            for name, module in PROGRAMS.items()
        ]
        return write_layer(target, [*folder_entries(root, ""), *programs], EPOCH_S)


def _compile(root: Path) -> None:
    """Compile every module below `root`, which is to be `/`: the image is read-only when it runs.

    The compiled files trust their sources unseen, so no time is part of them. A process of its own
    does it: what an interpreter has loaded before shows in the bytes.
    """
    command = [sys.executable, "-S", "-P", "-m", "compileall", "-qq", "-r", "30"]
    command += ["--invalidation-mode=unchecked-hash", "-s", str(root), "-p", "/", str(root)]
    # Files that are not meant for this release of Python fail, and stay as they are.
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "0"}, check=False)  # noqa: S603


def _digest(paths: list[Path]) -> str:
    """SHA-256 over names and contents of files, and of all sources below folders."""
    digest = hashlib.sha256()
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and not _is_made(file):
                digest.update(f"{file.relative_to(ROOT)}\n".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _is_made(file: Path) -> bool:
    """Whether a file beside the sources is made from them."""
    is_kernel = file.suffix == ".c" and file.with_suffix(".pyx").exists()
    return is_kernel or file.suffix in (".pyc", ".so")


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
