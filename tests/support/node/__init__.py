"""A real node for tests: kubelet, containerd (with NRI), runc and kube-proxy on this machine.

`NodeControlPlane` is a control plane that such a node can reach; `RealNode` is the node. It runs in
its own process, mount and network namespaces, with the usual paths inside, and leaves nothing
behind when it is stopped or the test run is killed. `missing_needs()` says what this machine lacks
for it.
"""

from tests.support.node.needs import missing_needs
from tests.support.node.node import NodeOptions, RealNode
from tests.support.node.plane import NodeControlPlane

__all__ = ["NodeControlPlane", "NodeOptions", "RealNode", "missing_needs"]
