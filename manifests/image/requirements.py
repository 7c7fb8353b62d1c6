"""The parts of requirements.lock that an image needs: to run, and to compile our wheel.

`python -m manifests.image.requirements [--build]` prints one of them, hashes included; the
Containerfile does that, so nothing but the standard library is used here.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

from manifests.image.debian import ImageError

ROOT: Final = Path(__file__).resolve().parents[2]
LOCKED: Final = re.compile(r"^([a-z0-9.-]+)==", re.IGNORECASE)
VIA: Final = re.compile(r"^ +#(?: via)? +([a-z0-9.-]+)", re.IGNORECASE)
#: Beside what pyproject.toml names under [build-system].
BUILD_EXTRA: Final = frozenset({"wheel"})


def runtime_requirements(project: Path, lock: Path) -> str:
    """The part of the lock file that the programs need when they run, hashes included.

    A locked package says who asked for it, so the developers' own are told apart by following
    that from pyproject.toml's `dependencies`.
    """
    wanted = _names(tomllib.loads(project.read_text())["project"]["dependencies"])
    sections = _sections(lock.read_text())
    asked_by = {
        name: {found[1] for line in lines if (found := VIA.match(line))}
        for name, lines in sections.items()
    }
    size = -1
    while size != len(wanted):
        size = len(wanted)
        wanted |= {name for name, who in asked_by.items() if who & wanted}
    return _chosen(sections, wanted)


def build_requirements(project: Path, lock: Path) -> str:
    """The part of the lock file that compiling our wheel needs, hashes included."""
    named = tomllib.loads(project.read_text())["build-system"]["requires"]
    sections = _sections(lock.read_text())
    return _chosen(sections, _names(named) | (BUILD_EXTRA & set(sections)) | {"packaging"})


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[=<>!\[; ]", each, maxsplit=1)[0].lower() for each in requirements}


def _chosen(sections: dict[str, list[str]], wanted: set[str]) -> str:
    missing = wanted - set(sections)
    if missing:
        raise ImageError(f"the lock file lacks {', '.join(sorted(missing))}: run make lock")
    return "\n".join(line for name in sorted(wanted) for line in sections[name]) + "\n"


def _sections(text: str) -> dict[str, list[str]]:
    """The lock file's lines by package name."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        found = LOCKED.match(line)
        if found:
            lines = sections.setdefault(found[1].lower(), [])
        lines.append(line)
    return sections


if __name__ == "__main__":
    read = build_requirements if sys.argv[1:] == ["--build"] else runtime_requirements
    print(read(ROOT / "pyproject.toml", ROOT / "requirements.lock"), end="")
