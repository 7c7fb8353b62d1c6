"""Free loopback ports that stay free while a component is down.

They are below the kernel's range for outgoing connections, so that no client takes the port of a
killed component before it restarts. For each port the process holds a name in the kernel's abstract
socket namespace, so that two runs on one machine never choose the same port.
"""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 15000
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 200
_claims: list[socket.socket] = []


def free_port() -> int:
    """A free TCP port on loopback, kept from other runs while this process lives."""
    highest = _first_ephemeral() - 1
    picks = random.SystemRandom()
    for _ in range(TRIES):
        port = picks.randint(LOWEST, highest)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        if _claim(port):
            return port
    raise OSError(f"no free port on {LOOPBACK} in {LOWEST}-{highest} after {TRIES} tries")


def free_ports(count: int) -> list[int]:
    """Different free ports."""
    return [free_port() for _ in range(count)]


def _claim(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0ballast-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def _first_ephemeral() -> int:
    try:
        first = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
    return first if first > LOWEST + 1000 else 65536
