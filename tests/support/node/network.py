"""Addresses of a control plane's nodes, and the virtual link between the machine and a node.

Each plane has a number, and with it 10.213.<number>.0/24 for nodes and 10.214.<number>.0/24 for
pods. The machine's end of each link has the address .1; the nodes have the next ones.
"""

import random
import socket
import subprocess
from dataclasses import dataclass

NODES_PREFIX = "10.213"
PODS_PREFIX = "10.214"
TRIES = 50
TIMEOUT_S = 20.0


class NetworkError(Exception):
    """An interface, address or route could not be created."""


@dataclass(slots=True)
class Network:
    """The addresses of one plane; `claim` reserves its number against other runs."""

    number: int
    claim: socket.socket

    @property
    def gateway(self) -> str:
        """The machine's address on the nodes' side."""
        return f"{NODES_PREFIX}.{self.number}.1"

    def node(self, ix: int) -> str:
        """Address of node `ix`."""
        return f"{NODES_PREFIX}.{self.number}.{ix + 2}"

    def pods(self, ix: int) -> str:
        """Addresses of the pods on node `ix`."""
        return f"{PODS_PREFIX}.{self.number}.{64 * ix}/26"

    @property
    def all_pods(self) -> str:
        """Addresses of the pods on all nodes of the plane."""
        return f"{PODS_PREFIX}.{self.number}.0/24"


def claim_network() -> Network:
    """A network that no other run on this machine uses; released when the process ends."""
    routes = _run("ip", "-4", "route", "show", "table", "all")
    for number in random.SystemRandom().sample(range(256), TRIES):
        if f"{NODES_PREFIX}.{number}." in routes or f"{PODS_PREFIX}.{number}." in routes:
            continue
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0ballast-network-{number}")
        except OSError:
            claim.close()
            continue
        return Network(number, claim)
    raise NetworkError("no free network in 10.213.0.0/16 and 10.214.0.0/16")


@dataclass(frozen=True, slots=True)
class Wire:
    """A pair of virtual interfaces: `name` on the machine, eth0 inside the node."""

    network: Network
    ix: int
    pid: int

    @property
    def name(self) -> str:
        """Name of the machine's end."""
        return f"bn{self.network.number}-{self.ix}"

    def connect(self) -> None:
        """Create the pair, with the addresses and routes by which the two sides reach each
        other."""
        network, name = self.network, self.name
        node, gateway = network.node(self.ix), network.gateway
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", self._pid)
        _run("ip", "address", "add", f"{gateway}/32", "dev", name)
        _run("ip", "link", "set", name, "up")
        _run("ip", "route", "add", f"{node}/32", "dev", name, "src", gateway)
        self._inside("ip", "link", "set", "lo", "up")
        self._inside("ip", "address", "add", f"{node}/32", "dev", "eth0")
        self._inside("ip", "link", "set", "eth0", "up")
        self._inside("ip", "route", "add", f"{gateway}/32", "dev", "eth0", "src", node)
        self._inside("ip", "route", "add", "default", "via", gateway, "src", node)
        _run("ip", "route", "add", network.pods(self.ix), "via", node, "dev", name, "onlink")
        self._inside("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")

    def disconnect(self) -> None:
        """Remove the pair, unless it went with the node's end."""
        subprocess.run(
            ["ip", "link", "delete", self.name],
            timeout=TIMEOUT_S,
            check=False,
            stderr=subprocess.DEVNULL,
        )

    @property
    def _pid(self) -> str:
        return str(self.pid)

    def _inside(self, *command: str) -> None:
        _run("nsenter", "--target", self._pid, "--net", "--mount", "--", *command)


def _run(*command: str) -> str:
    done = subprocess.run(command, timeout=TIMEOUT_S, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
