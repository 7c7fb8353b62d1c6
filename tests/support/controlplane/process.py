"""One program as a child process: start, wait until ready, freeze, kill.

Every child has its own session, so that Ctrl-C in a terminal does not reach it and children end in
the right order, and a death signal, so that none outlives a killed test run. `cluster.py` decides
what is started with which flags.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launcher.py")
#: Seconds between two checks of a condition; every wait also has a deadline.
POLL_S = 0.02
TAIL_LINES = 25


class ControlPlaneError(Exception):
    """A program of the control plane is not available, did not start, or ended unexpectedly."""


_Fork = Callable[[], subprocess.Popen[bytes]]


class _Spawner:
    """Forks children from one thread that lives as long as the interpreter.

    The death signal is sent when the forking thread ends, so a test's worker thread must not fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[_Fork, Future[subprocess.Popen[bytes]]]]
        self._jobs = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, fork: _Fork) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._serve, name="spawner", daemon=True)
                self._thread.start()
        child: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((fork, child))
        return child.result(timeout=30)

    def _serve(self) -> None:
        while True:
            fork, child = self._jobs.get()
            try:
                child.set_result(fork())
            except BaseException as error:
                child.set_exception(error)


_spawner = _Spawner()


class Process:
    """A program that can be started, frozen, killed and restarted with the same arguments."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log_path: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log_path = log_path
        self._env = dict(os.environ if env is None else env)
        self._child: subprocess.Popen[bytes] | None = None
        self.is_frozen = False

    @property
    def pid(self) -> int:
        """The process id of the running program; 0 if it was not started."""
        return self._child.pid if self._child else 0

    @property
    def is_alive(self) -> bool:
        """Whether the program is running or frozen."""
        return self._child is not None and self._child.poll() is None

    @property
    def was_killed(self) -> bool:
        """Whether the program ended by SIGKILL, as at a failpoint."""
        return self._child is not None and self._child.poll() == -signal.SIGKILL

    def start(self) -> None:
        """Start the program; its output is appended to `log_path`."""
        if self.is_alive:
            return
        argv = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *self.argv]
        with self.log_path.open("ab") as log:
            self._child = _spawner.run(
                lambda: subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    start_new_session=True,
                )
            )
        self.is_frozen = False

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        """Return once `is_ready()`; raises ControlPlaneError if the program ends or time is up."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_alive:
                raise ControlPlaneError(f"{self.name} ended while starting; {self.describe_log()}")
            if time.monotonic() > deadline:
                raise ControlPlaneError(
                    f"{self.name} was not ready in {timeout_s:.0f} s; {self.describe_log()}"
                )
            time.sleep(POLL_S)

    def freeze(self) -> None:
        """Stop the program (SIGSTOP); it keeps its sockets and its memory."""
        self._signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let a frozen program continue."""
        self._signal(signal.SIGCONT)
        self.is_frozen = False

    def kill(self) -> None:
        """End the program with SIGKILL, even if it is frozen, and reap it."""
        self.end(0)

    def end(self, grace_s: float) -> None:
        """End the program: SIGTERM, and SIGKILL after `grace_s` (at once if that is 0)."""
        child = self._child
        if child is None:
            return
        if child.poll() is None and grace_s > 0 and not self.is_frozen:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace_s)
        if child.poll() is None:
            child.kill()
        child.wait(30)
        self.is_frozen = False

    def describe_log(self) -> str:
        """The log's path and its last lines."""
        return f"log {self.log_path}:\n{tail(self.log_path)}"

    def _signal(self, number: int) -> None:
        if not self.is_alive or self._child is None:
            raise ControlPlaneError(f"{self.name} does not run")
        self._child.send_signal(number)


def tail(path: Path, n_lines: int = TAIL_LINES) -> str:
    """The last lines of a text file; empty if it does not exist."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-n_lines:])
