"""A control plane that real nodes can join, with network connections in both directions.

The API server stays on loopback. Unlike in `ControlPlane`, its certificate also has the addresses
on the nodes' side, it reaches kubelets by their InternalIP and webhook Services by their endpoints,
and the endpoint of the Service `kubernetes` is a forwarder.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.controlplane.certificates import KeyPair, write_private
from tests.support.controlplane.cluster import API_SERVER, ControlPlane
from tests.support.controlplane.kubeconfig import write_kubeconfig
from tests.support.controlplane.ports import LOOPBACK
from tests.support.controlplane.process import Process
from tests.support.node.network import Network, claim_network

FORWARDER = Path(__file__).with_name("forwarder.py")
#: First address of the Service range: the API server for pods.
SERVICE_ADDRESS = "10.96.0.1"
PORT = 6443
SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)


class NodeControlPlane(ControlPlane):
    """`start()` and `stop()` as in `ControlPlane`; nodes are added by `RealNode`."""

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__(parent)
        self.network: Network = claim_network()
        self._forwarder: Process | None = None

    @property
    def node_url(self) -> str:
        """The API server's URL for nodes."""
        return f"https://{self.network.gateway}:{PORT}"

    def node_kubeconfig(self, target: Path, identity: KeyPair) -> Path:
        """Write a kubeconfig for a program on a node."""
        return write_kubeconfig(target, self.node_url, self.authority.certificate, identity)

    def start(self) -> None:
        """Start the control plane and the forwarder for nodes."""
        super().start()
        argv = [sys.executable, "-I", "-S", str(FORWARDER), self.network.gateway, str(PORT)]
        argv += [LOOPBACK, str(self.ports.api_server)]
        self._forwarder = Process("forwarder", argv, self.logs / "forwarder.log")
        self._forwarder.start()
        self.admin.ensure(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", self._endpoints()
        )
        self.mark_baseline()

    def __enter__(self) -> "NodeControlPlane":
        self.start()
        return self

    def stop(self, *, is_kept: bool = False, with_data: bool = False) -> None:
        """End all processes, as in `ControlPlane`."""
        if self._forwarder is not None:
            self._forwarder.kill()
        super().stop(is_kept=is_kept, with_data=with_data)

    def _prepare(self, binaries: Mapping[str, Path]) -> None:
        super()._prepare(binaries)
        addresses = (LOOPBACK, self.network.gateway, SERVICE_ADDRESS)
        serving = self.authority.serving(SERVICE_NAMES, addresses)
        write_private(self._layout.pki("apiserver.crt"), serving.certificate)
        write_private(self._layout.pki("apiserver.key"), serving.key)

    def _run(self, name: str, argv: Sequence[str]) -> None:
        if name == API_SERVER:
            pki = self._layout.pki
            argv = [
                *argv,
                "--enable-aggregator-routing=true",
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={pki('admin.crt')}",
                f"--kubelet-client-key={pki('admin.key')}",
            ]
        super()._run(name, argv)

    def _endpoints(self) -> dict[str, object]:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": [self.network.gateway], "conditions": {"ready": True}},
            ],
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
        }
