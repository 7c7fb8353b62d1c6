"""The real control plane that tests and the demo run on.

`ControlPlane` starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok as
processes on loopback, and so does `python -m tests.support.controlplane up`.
"""

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.process import ControlPlaneError, Process

__all__ = ["ControlPlane", "ControlPlaneError", "Process"]
