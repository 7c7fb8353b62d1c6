"""A program of another project that runs beside a control plane in a test."""

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
