"""Which pod a process of the host belongs to, by its control group: the kernel's word, not its own.

Numbers of processes mean what they mean to us only where we see all of the host (`hostPID`).
"""

import errno
import os
import re
import select
import socket
import struct
from pathlib import Path
from typing import Final

#: `pod<uid>` as kubelet names groups; the systemd driver writes the uid with underscores.
_POD: Final = re.compile(rb"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
#: Bytes of a process's list of groups: one line each, of which there are a dozen at most. The
#: kernel hands it out whole.
_LONGEST: Final = 1 << 16
PROC: Final = Path("/proc")
_CREDENTIALS: Final = struct.Struct("3i")
#: SO_PEERPIDFD of Linux 6.5, which Python has no name for.
_PEER_PIDFD: Final = 77


def pod_of(pid: int, proc: Path = PROC) -> str:
    """The uid of the process's pod; empty where it has none or is gone."""
    # The innermost: the node itself may be a pod of another cluster.
    found = _POD.findall(_groups(pid, proc))
    return found[-1].decode().replace("_", "-") if found else ""


def is_in_container(pid: int, pod: str, container: str, proc: Path = PROC) -> bool:
    """Whether the process runs in this container of the pod; runtimes name its group by its id."""
    is_named = bool(container) and container.encode() in _groups(pid, proc)
    return is_named and pod_of(pid, proc) == pod


def _groups(pid: int, proc: Path) -> bytes:
    """The process's control groups as the kernel lists them; empty where it is gone."""
    try:
        # Done for every process that comes, so without the layers of `open`.
        file = os.open(f"{proc}/{pid}/cgroup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _LONGEST)
    except OSError:
        return b""
    finally:
        os.close(file)


def pod_of_peer(connection: socket.socket, proc: Path = PROC) -> str:
    """The uid of the pod that connected the other end; empty where none did, or it is gone.

    It is the process that called `connect`, even if another one holds the socket now. Its
    number may have been given to another process since: from Linux 6.5 on that is noticed.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    # Nought: it is in a space of numbers that we don't see.
    uid = pod_of(pid, proc) if pid > 0 else ""
    # Asked afterwards: a process that lives now had its number while its group was read.
    return uid if uid and _is_connector_alive(connection) else ""


def _is_connector_alive(connection: socket.socket) -> bool:
    """Whether the process that connected lives; an older kernel can't tell, so it is believed."""
    try:
        connector = connection.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
    except OSError as error:
        return error.errno == errno.ENOPROTOOPT
    try:
        ends = select.poll()
        ends.register(connector, select.POLLIN)
        return not ends.poll(0)
    finally:
        os.close(connector)
