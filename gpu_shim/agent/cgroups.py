"""The pod of a host process, by its control group, which the kernel vouches for.

Process numbers are those of the host only if we run in its namespace (`hostPID`).
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
#: Bytes of a process's list of groups, a dozen lines at most, which the kernel returns in one read.
_LONGEST: Final = 1 << 16
PROC: Final = Path("/proc")
_CREDENTIALS: Final = struct.Struct("3i")
#: SO_PEERPIDFD of Linux 6.5, which Python has no name for.
_PEER_PIDFD: Final = 77


def pod_of(pid: int, proc: Path = PROC) -> str:
    """The uid of the process's pod; empty if it has none or has ended."""
    # The innermost: the node itself may be a pod of another cluster.
    found = _POD.findall(_groups(pid, proc))
    return found[-1].decode().replace("_", "-") if found else ""


def is_in_container(pid: int, pod: str, container: str, proc: Path = PROC) -> bool:
    """Whether the process runs in this container of the pod; its group is named by container id."""
    is_named = bool(container) and container.encode() in _groups(pid, proc)
    return is_named and pod_of(pid, proc) == pod


def _groups(pid: int, proc: Path) -> bytes:
    """The process's control groups as the kernel lists them; empty if it has ended."""
    try:
        # Done for every new process, so without the layers of `open`.
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
    """The uid of the pod that connected the other end; empty if none did, or its process has ended.

    The kernel reports the process that called `connect`, even if another one holds the socket now.
    Its number may have been reused since; from Linux 6.5 on that is detected.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    # 0: the process is in a PID namespace that we cannot see.
    uid = pod_of(pid, proc) if pid > 0 else ""
    # Checked afterwards: a process that is still alive had its number while its group was read.
    return uid if uid and _is_connector_alive(connection) else ""


def _is_connector_alive(connection: socket.socket) -> bool:
    """Whether the process that connected is alive; older kernels cannot tell, so true there."""
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
