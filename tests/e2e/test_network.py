"""The network policies where they are enforced: kube-router runs in the node from its start, so all
stories of this suite pass with them. Skipped without it."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e import workloads
from tests.e2e.conftest import Installed
from tests.e2e.site import AGENT_LABEL, NODE_SYSTEM, SYSTEM, Manifest, Site, is_enforcing
from tests.support.overlays import of_kind, rendered

ENDED_S: Final = 90.0
MONITORING: Final = "monitoring"
#: Tries for 30 s to connect to each address of its arguments, since kube-router learns of the pod's
#: own address only after its start; prints those that answered.
PROBE: Final = """
import json, socket, sys, time
answered, silent, deadline = [], sys.argv[1:], time.monotonic() + 30
while silent and time.monotonic() < deadline:
    for each in silent[:]:
        host, port = each.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            continue
        answered.append(each)
        silent.remove(each)
print(json.dumps(answered))
"""


@pytest.fixture
def enforcing(installed: Installed) -> Iterator[Site]:
    site = installed.site
    if not is_enforcing(site):
        pytest.skip(
            "no kube-router in the node: `make kube-router`, and Debian's ipset and iptables"
        )
    site.apply(workloads.namespace(MONITORING))
    policies = of_kind(rendered("monitoring"), "NetworkPolicy")
    site.apply(*policies)
    site.kubectl("label", "node", site.real_node, AGENT_LABEL)
    what = {"app.kubernetes.io/component": "gpu-shim"}
    site.wait("the agent", ENDED_S, lambda: len(site.pods(NODE_SYSTEM, "Running", **what)), 1)
    yield site
    site.kubectl("label", "node", site.real_node, AGENT_LABEL.replace("=true", "-"))
    site.kubectl("delete", "namespace", MONITORING, "--timeout=60s")
    for each in policies:
        name = each["metadata"]["name"]
        site.kubectl("delete", "networkpolicy", name, "-n", each["metadata"]["namespace"])


def addresses(site: Site) -> dict[str, str]:
    """HOST:PORT of every named port of Ballast's pods, by component and name."""
    found = {}
    for namespace in (SYSTEM, NODE_SYSTEM):
        for pod in site.get("pods", "-n", namespace, "--field-selector=status.phase=Running"):
            component = pod["metadata"]["labels"].get("app.kubernetes.io/component", "")
            for container in pod["spec"]["containers"]:
                for port in container.get("ports", ()):
                    where = f"{pod['status']['podIP']}:{port['containerPort']}"
                    found[f"{component}/{port['name']}"] = where
    return found


def reached_from(site: Site, namespace: str, *targets: str) -> set[str]:
    """Those of the addresses that a pod of the namespace can connect to."""
    probe: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": site.real_node,
            "containers": [
                {
                    "name": "main",
                    "image": site.image(),
                    "command": ["python3", "-c", PROBE, *targets],
                }
            ],
        },
    }
    site.apply(probe)
    try:
        site.wait(
            f"the probe in {namespace}",
            ENDED_S,
            lambda: site.pods(namespace, "Succeeded"),
            ["probe"],
        )
        return set(json.loads(site.kubectl("logs", "probe", "-n", namespace)))
    finally:
        site.kubectl("delete", "pod", "probe", "-n", namespace, "--now")


def test_only_the_monitoring_reads_metrics_and_anyone_calls_the_webhooks(enforcing: Site) -> None:
    site = enforcing
    found = addresses(site)
    metrics = {each for name, each in found.items() if name.endswith("/metrics")}
    assert len(metrics) == 3, found  # control, extender, agent
    assert reached_from(site, MONITORING, *found.values()) >= metrics
    outside = reached_from(site, "default", *found.values())
    assert outside == {found["webhooks/https"]}
