"""A copy of the tree in which mutants are tried, one after the other."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mutants.mutant import ROOT, Mutant

COPIED: Final = ("extender", "webhooks", "gpu_shim", "tests", "manifests", "pyproject.toml")
TIMEOUT_S: Final = 300.0
#: pytest's exit status where tests ran and some failed; any other is no catch.
TESTS_FAILED: Final = 1


class Laboratory:
    """The copy; `survives` leaves it as it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def survives(self, mutant: Mutant) -> str:
        """What the tests said if the mutant was not caught; empty when it was."""
        target = self._folder / mutant.file
        sound = target.read_text("utf-8")
        target.write_text(sound.replace(mutant.old, mutant.new), "utf-8")
        try:
            status, said = self._run(mutant.caught_by)
        finally:
            target.write_text(sound, "utf-8")
        return "" if status == TESTS_FAILED else f"exit status {status}: {said[-2000:]}"

    def _run(self, test: str) -> tuple[int, str]:
        # No byte code: two versions of a file within a second would look the same.
        done = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-x", "-p", "no:cacheprovider", test],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout


@contextmanager
def opened() -> Iterator[Laboratory]:
    """A copy of the tree with its compiled kernels; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ballast-mutants-") as made:
        folder = Path(made)
        skipped = shutil.ignore_patterns("__pycache__", "*.c")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=skipped)
            else:
                shutil.copy2(ROOT / name, folder / name)
        yield Laboratory(folder)
