"""The command line of every component, with the reasons for its flags.

Pure: paths and ports in, arguments out. `cluster.py` starts the components.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.controlplane.ports import LOOPBACK

SERVICE_CIDR = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc"
#: Controllers that the tests need; cloud, storage, certificate and autoscaling controllers would
#: only list and watch.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)
#: Duration of node leases. Simulated kubelets renew them after a quarter of it: 5,000 nodes make
#: 100 requests a second instead of 500.
NODE_LEASE_S = 200
#: Age of a lease at which the node is lost: some renewals more than NODE_LEASE_S.
NODE_GRACE_S = 300


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the components on loopback."""

    etcd_client: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int
    #: Port of `ballast serve`, the same for all tests, so that kube-scheduler is not restarted.
    extender: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths: the programs, and everything else below `work`."""

    binaries: Mapping[str, Path]
    work: Path

    def program(self, name: str) -> str:
        return str(self.binaries[name])

    def pki(self, name: str) -> Path:
        return self.work / "pki" / name

    def kubeconfig(self, name: str) -> Path:
        return self.work / "kubeconfig" / name

    def log(self, name: str) -> Path:
        return self.work / "logs" / f"{name}.log"

    def all_but_logs(self) -> list[Path]:
        """The folders that are not needed after the processes have ended."""
        return [self.work / name for name in ("etcd", "pki", "kubeconfig", "kubectl-cache")]

    @property
    def audit_log(self) -> Path:
        return self.work / "logs" / "audit.jsonl"


def etcd(layout: Layout, ports: Ports) -> list[str]:
    client = f"http://{LOOPBACK}:{ports.etcd_client}"
    peer = f"http://{LOOPBACK}:{ports.etcd_peer}"
    return [
        layout.program("etcd"),
        "--name=ballast",
        f"--data-dir={layout.work / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=ballast={peer}",
        # The data need not survive a crash of the machine; a killed process loses nothing.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def api_server(layout: Layout, ports: Ports) -> list[str]:
    return [
        layout.program("kube-apiserver"),
        f"--etcd-servers=http://{LOOPBACK}:{ports.etcd_client}",
        # Tests that need a 410 compact explicitly.
        "--etcd-compaction-interval=0",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports.api_server}",
        # There is no Service network, so the endpoints of `kubernetes` are not needed.
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--tls-cert-file={layout.pki('apiserver.crt')}",
        f"--tls-private-key-file={layout.pki('apiserver.key')}",
        f"--client-ca-file={layout.pki('ca.crt')}",
        # A kubelet may write only its own node and pods, as in clusters by kubeadm.
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={layout.pki('tokens.pub')}",
        f"--service-account-signing-key-file={layout.pki('tokens.key')}",
        f"--audit-policy-file={layout.work / 'audit-policy.json'}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=0",
        "--allow-privileged=true",
        # Aggregated APIs as in clusters by kubeadm, with a separate CA.
        f"--requestheader-client-ca-file={layout.pki('front-proxy-ca.crt')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={layout.pki('front-proxy.crt')}",
        f"--proxy-client-key-file={layout.pki('front-proxy.key')}",
        # Benchmarks should reach the limits of the code under test, not of the API server.
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
        "--profiling=false",
    ]


def controller_manager(
    layout: Layout, ports: Ports, controllers: Sequence[str] = CONTROLLERS
) -> list[str]:
    kubeconfig = layout.kubeconfig("controller-manager")
    return [
        layout.program("kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.controller_manager}",
        f"--controllers={','.join(controllers)}",
        # Each controller has its own account, as in a real cluster, so the audit log names it.
        "--use-service-account-credentials=true",
        f"--root-ca-file={layout.pki('ca.crt')}",
        f"--service-account-private-key-file={layout.pki('tokens.key')}",
        "--leader-elect=false",
        f"--node-monitor-grace-period={NODE_GRACE_S}s",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
    ]


def scheduler(layout: Layout, ports: Ports, config: Path) -> list[str]:
    kubeconfig = layout.kubeconfig("scheduler")
    return [
        layout.program("kube-scheduler"),
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.scheduler}",
    ]


def kwok(layout: Layout, ports: Ports, stages: Path) -> list[str]:
    return [
        layout.program("kwok"),
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={stages}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-lease-duration-seconds={NODE_LEASE_S}",
        f"--server-address={LOOPBACK}:{ports.kwok}",
        f"--node-ip={LOOPBACK}",
        "--cidr=10.200.0.0/16",
    ]


#: Logs every write and read with user, object, time and status code, but without bodies and without
#: the periodic requests of components.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version"]},
        {"level": "Metadata"},
    ],
}
