"""The shipped configuration, loaded by the real kube-scheduler."""

from typing import Any

from extender.api import names
from tests.integration.webhooks.conftest import manifest
from tests.support.controlplane.handles import Cluster, wait_for

BOUND_S = 30.0


def test_profile_places_a_pod_without_gpus_and_never_asks_the_extender(cluster: Cluster) -> None:
    # No server listens where the configuration says the extender is.
    cluster.add_gpu_nodes(1)
    admin = cluster.control_plane.admin
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    admin.post(path, manifest("plain", schedulerName=names.SCHEDULER_NAME))

    def is_bound() -> bool:
        pod: dict[str, Any] = admin.get(f"{path}/plain")
        return bool(pod["spec"].get("nodeName"))

    wait_for(is_bound, BOUND_S, "the pod bound by our profile")
