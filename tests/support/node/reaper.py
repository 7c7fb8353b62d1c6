"""The first process inside a node's namespaces: it waits, and reaps orphaned processes.

Run as a script. When it ends, the kernel ends every process of the node and drops its mounts.
"""

import os
import signal

CHILD = {signal.SIGCHLD}


def reap() -> None:
    """Reap all children that have ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, CHILD)
    while True:
        reap()
        signal.sigwait(CHILD)
