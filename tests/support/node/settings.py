"""The configuration files of a node's programs.

Pure: addresses and names in, file contents out, by path inside the node.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
NRI_SOCKET = "/var/run/nri/nri.sock"
CONTAINERD = "/etc/containerd/config.toml"
CNI = "/etc/cni/net.d/10-ballast.conflist"
KUBELET = "/etc/kubernetes/kubelet.json"
KUBELET_KUBECONFIG = "/etc/kubernetes/kubelet.conf"
KUBELET_CA = "/etc/kubernetes/pki/ca.crt"
PROXY = "/etc/kubernetes/kube-proxy.json"
PROXY_KUBECONFIG = "/etc/kubernetes/kube-proxy.conf"


@dataclass(frozen=True, slots=True)
class Place:
    """A node's name and addresses, and the resources of the machine that it gets."""

    name: str
    address: str
    pods: str
    all_pods: str
    cgroup: str
    plugins: Path
    snapshotter: str
    sandbox_image: str
    runtimes: Mapping[str, Path] = field(default_factory=dict)


def files(place: Place) -> dict[str, str]:
    """Path inside the node -> content of all configuration files except kubeconfigs."""
    return {
        CONTAINERD: containerd(place),
        CNI: json.dumps(network(place), indent=1),
        KUBELET: json.dumps(kubelet(place), indent=1),
        PROXY: json.dumps(proxy(place), indent=1),
    }


def containerd(place: Place) -> str:
    runtimes = "".join(_runtime(name, program) for name, program in place.runtimes.items())
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "{NRI_SOCKET}"
plugin_path = "/opt/nri/plugins"
plugin_config_path = "/etc/nri/conf.d"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "{place.snapshotter}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{place.sandbox_image}"

[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE no process may become less killable than the test itself is.
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
{runtimes}
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{place.plugins}"]
conf_dir = "{Path(CNI).parent}"
"""


def _runtime(name: str, program: Path) -> str:
    runtime = f'plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}'
    return f"""
[{runtime}]
runtime_type = "io.containerd.runc.v2"

[{runtime}.options]
BinaryName = "{program}"
"""


def network(place: Place) -> dict[str, object]:
    """The CNI configuration: each pod has its own interface to the node, which routes."""
    ranges = [[{"subnet": place.pods}]]
    address = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "1.0.0",
        "name": "ballast",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": address}],
    }


def kubelet(place: Place) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": place.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": KUBELET_CA},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": place.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        # The machine's disk is shared, so how full it is must not matter.
        "evictionHard": {"memory.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "maxPods": 60,
        "podLogsDir": "/var/log/pods",
        "registerNode": True,
        "resolvConf": "",
        "serializeImagePulls": False,
    }


def proxy(place: Place) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": PROXY_KUBECONFIG},
        "clusterCIDR": place.all_pods,
        # Kernel settings of connection tracking belong to the machine; zero leaves them unchanged.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s"}
        | {"tcpCloseWaitTimeout": "0s"},
        "hostnameOverride": place.name,
        "mode": "nftables",
        "nftables": {"syncPeriod": "30s", "minSyncPeriod": "100ms"},
    }
