"""kube-router inside a real node: it enforces network policies there, and does nothing else."""

import shutil
from typing import Final

from tests.support.kube_router import PROGRAM, PROGRAMS
from tests.support.node import NodeControlPlane, RealNode

#: Programs of Debian's packages `ipset` and `iptables` that it runs.
NEEDS: Final = ("ipset", "iptables-save")


def can_enforce() -> bool:
    """Whether it is built and has what it needs."""
    return PROGRAMS.has() and all(shutil.which(each) for each in NEEDS)


def enforce_policies(plane: NodeControlPlane, node: RealNode) -> None:
    """Start it; it ends with the node."""
    admin = plane.authority.client("kube-router", ("system:masters",))
    kubeconfig = plane.node_kubeconfig(plane.work / PROGRAM, admin)
    # Otherwise packets between pods of the node stay in its bridge, and pass no rule.
    node.run("sh", "-c", "echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables")
    node.start_program(
        PROGRAMS.path(PROGRAM),
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        f"--hostname-override={node.name}",
        f"--kubeconfig={kubeconfig}",
    )
