"""Becomes another program that is killed when the parent process ends.

Run as a script, `python -I -S launcher.py <parent pid> <program> <arguments...>`: the death signal
must be set between fork and exec, and running a Python function there is not safe in a process with
threads. The kernel keeps the death signal across exec. It is tied to the *thread* that forked, so
`process.py` forks from one thread that lives as long as the interpreter.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def become(parent_pid: int, argv: list[str]) -> None:
    """Replace this process by `argv`, which is killed when the parent's thread ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:  # the parent ended before the signal was set
        sys.exit(1)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
