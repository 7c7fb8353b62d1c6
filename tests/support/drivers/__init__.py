"""NVIDIA's user-space libraries of several driver branches; they load without a GPU.

Debian has them in its non-free section. `fetch` downloads them into the cache folder from the
mirror of this machine's apt, and installs nothing. `symbols/` lists the names that each library
exports, so that tests need no network.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES: Final = ("libcuda1", "libnvidia-ml1", "nvidia-smi")
LIBRARIES: Final = ("libcuda", "libnvidia-ml")
#: Branch -> Debian's version, and the suite that had it on 2026-11-23.
BRANCHES: Final = {
    "535.261.03": ("535.261.03-1", "bookworm"),
    "550.163.01": ("550.163.01-2", "trixie"),
    "555.58.02": ("555.58.02-4", "experimental"),
}


class FetchError(Exception):
    """The packages could not be downloaded; the message is apt's."""


@dataclass(slots=True, frozen=True)
class Driver:
    """One branch, unpacked."""

    version: str
    folder: Path

    def library(self, name: str) -> Path:
        """The file of `libcuda` or `libnvidia-ml`."""
        return next(self.folder.rglob(f"{name}.so.{self.version}"))

    @property
    def smi(self) -> Path:
        """The nvidia-smi program."""
        return next(self.folder.rglob("current/nvidia-smi"))


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the drivers."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ballast" / "drivers"


def fetched() -> list[Driver]:
    """The branches in the cache folder."""
    drivers = (Driver(version, cache_folder() / version) for version in BRANCHES)
    return [each for each in drivers if (each.folder / "complete").exists()]


def fetch() -> list[Driver]:
    """All branches; downloads missing ones (12 MB)."""
    folder = cache_folder()
    missing = [version for version in BRANCHES if not (folder / version / "complete").exists()]
    if missing:
        apt = _Apt(folder / "apt")
        apt.run("update")
        for version in missing:
            _fetch(apt, version, folder / version)
    return fetched()


def exported(library: Path) -> dict[str, str]:
    """Exported name -> kind: T a function, B data."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    found = (line.split() for line in done.stdout.splitlines())
    return {parts[2].split("@")[0]: parts[1] for parts in found if len(parts) == 3}


def committed(library: str) -> dict[str, dict[str, str]]:
    """Exported names and kinds by driver version, from `symbols/`."""
    lines = (HERE / "symbols" / f"{library}.txt").read_text().splitlines()
    found: dict[str, dict[str, str]] = {version: {} for version in BRANCHES}
    for line in lines:
        if line and not line.startswith("#"):
            name, kind, *versions = line.split()
            for version in versions:
                found[version][name] = kind
    return found


def table_of(drivers: list[Driver], library: str) -> Iterator[str]:
    """The lines of `symbols/`: name, kind, and the versions that export it."""
    by_version = {each.version: exported(each.library(library)) for each in drivers}
    yield f"# What {library} of these drivers exports (nm -D), from Debian's non-free packages:"
    yield "# " + ", ".join(BRANCHES[each.version][0] for each in drivers)
    yield "# Made by `make drivers`. A line: name, T (function) or B (data), drivers."
    for name in sorted({name for names in by_version.values() for name in names}):
        versions = [version for version, names in by_version.items() if name in names]
        yield " ".join([name, by_version[versions[0]][name], *versions])


class _Apt:
    """apt with its own lists and cache, on the machine's mirror."""

    def __init__(self, folder: Path) -> None:
        (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (folder / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        sources = folder / "sources.list"
        mirror = _mirror()
        suites = sorted({suite for _, suite in BRANCHES.values()})
        sources.write_text(
            "".join(f"deb [signed-by={KEYRING}] {mirror} {suite} non-free\n" for suite in suites)
        )
        self._options = {
            "Dir::Etc::sourcelist": str(sources),
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": str(folder / "lists"),
            "Dir::Cache": str(folder / "cache"),
            "APT::Sandbox::User": "root",
        }

    def run(self, *arguments: str, cwd: Path | None = None) -> None:
        """Run apt-get; raises FetchError."""
        options = [
            part for key, value in self._options.items() for part in ("-o", f"{key}={value}")
        ]
        done = subprocess.run(
            ["apt-get", "-qq", *options, *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise FetchError(done.stderr.strip())


def _mirror() -> str:
    """The mirror of Debian's main archive in this machine's apt configuration."""
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("deb*"))]
    text = "\n".join(each.read_text() for each in places if each.is_file())
    found = re.findall(r"^(?:URIs: *|deb (?:\[.*?\] )?)(\S+)", text, re.MULTILINE)
    if not found or not KEYRING.exists():
        raise FetchError("apt on this machine has no mirror of Debian, or not its keys")
    return str(found[0])


def _fetch(apt: _Apt, version: str, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        apt.run("download", f"{package}={BRANCHES[version][0]}", cwd=into)
    for archive in into.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(archive), str(into)], check=True)
        archive.unlink()
    (into / "complete").touch()
