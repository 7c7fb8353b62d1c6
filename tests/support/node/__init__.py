"""A real node for tests: kubelet, containerd (NRI on), runc and kube-proxy, beside the machine.

`NodeControlPlane` is the control plane that such a node can reach; `RealNode` is the node. It
lives in namespaces of its own (processes, mounts, network), with the usual paths inside, and
goes without a trace when it is stopped or when the test run is killed. `missing_needs()` says
what this machine lacks for it.
"""

from tests.support.node.needs import missing_needs
from tests.support.node.node import NodeOptions, RealNode
from tests.support.node.plane import NodeControlPlane

__all__ = ["NodeControlPlane", "NodeOptions", "RealNode", "missing_needs"]
