"""A program of another project that runs beside a control plane in a test."""

import fcntl
from pathlib import Path
from typing import IO

from tests.support.controlplane.process import Process


class Neighbour:
    """One program; subclasses make its `_process`, and say what it needs and when it is ready."""

    _process: Process

    @property
    def is_alive(self) -> bool:
        """Whether it is running."""
        return self._process.is_alive

    def install(self) -> None:
        """Apply its kinds; most have some."""

    def start(self) -> None:
        """Start it; returns at once, or when it is ready."""
        self._process.start()

    def stop(self) -> None:
        """End it."""
        self._process.kill()


class OnlyNeighbour(Neighbour):
    """A program with a fixed port, so that only one runs on a machine; subclasses say which file is
    locked meanwhile."""

    _lock_path: Path
    _lock: IO[str] | None = None

    def start(self) -> None:
        """Start it, once no other runs."""
        if self._lock is None:
            self._lock = self._lock_path.open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        super().start()

    def stop(self) -> None:
        """End it, and let another one start."""
        super().stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
