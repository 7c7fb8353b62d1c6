"""The Prometheus operator reads the overlay `monitoring`: every program of Ballast is scraped.

promtool discovers the targets as Prometheus would, and does not scrape them. Skipped unless
`make prometheus-operator` has built the operator.
"""

import json
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.api.names import SYSTEM_NAMESPACE
from tests.integration.monitoring.prometheus import rule_groups
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.controlplane.nodes import GpuNodes
from tests.support.overlays import MANIFESTS, rendered
from tests.support.prometheus_operator import PROGRAMS, PROMTOOL
from tests.support.prometheus_operator.running import NAMESPACE, PrometheusOperator
from webhooks import certs
from webhooks.rotation import Chain, to_data

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.parametrize("cluster", [None], indirect=True),
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not PROGRAMS.has(),
        reason="no Prometheus operator: make prometheus-operator builds it",
    ),
]
WAITS_S: Final = 120.0
PROMETHEUS: Final = "k8s"
COMPONENT: Final = "__meta_kubernetes_pod_label_app_kubernetes_io_component"
#: What would let the API server call pods in which nothing runs.
CALLED: Final = ("APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
KINDS: Final = ("serviceMonitor", "podMonitor", "rule")
PAGE: Final = MANIFESTS.parent / "docs" / "install.md"


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[PrometheusOperator]:
    """The operator beside the overlays; their pods run on two nodes with GPUs and one without.

    Nothing runs in these pods, so the tests make the Secret of the webhooks.
    """
    made = PrometheusOperator(cluster.control_plane, tmp_path)
    made.install()
    cluster.add_nodes(GpuNodes(2, prefix="gpu", labels={"nvidia.com/gpu.present": "true"}))
    cluster.add_nodes(GpuNodes(1, gpus=0, prefix="plain"))
    for overlay in ("default", "view", "web", "monitoring"):
        documents = [each for each in rendered(overlay) if each["kind"] not in CALLED]
        cluster.kubectl("apply", "--server-side", "-f-", stdin=yaml.safe_dump_all(documents))
    made.start()
    try:
        wait_for(lambda: "Pending" not in pods(cluster), WAITS_S, "all pods to run")
        yield made
    finally:
        made.stop()


def pods(cluster: Cluster) -> str:
    return cluster.kubectl("get", "pods", "-A", "--no-headers")


def publish_certificate(cluster: Cluster) -> None:
    """The Secret that the webhooks make when they start."""
    chain = Chain(certs.make(now=datetime.now(UTC), lifetime=timedelta(days=1)))
    secret = {
        "metadata": {"name": "ballast-webhooks-tls", "namespace": SYSTEM_NAMESPACE},
        "type": "kubernetes.io/tls",
        "data": to_data(chain),
    }
    cluster.control_plane.admin.post(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets", secret)


def watch(cluster: Cluster, selector: dict[str, Any]) -> None:
    """A Prometheus that takes the monitors and rules with these labels in all namespaces."""
    selectors = {f"{kind}Selector": selector for kind in KINDS}
    everywhere: dict[str, Any] = {f"{kind}NamespaceSelector": {} for kind in KINDS}
    body = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": PROMETHEUS, "namespace": NAMESPACE},
        "spec": {
            "version": "v3.5.0",
            "serviceDiscoveryRole": "EndpointSlice",
            **selectors,
            **everywhere,
        },
    }
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/prometheuses"
    cluster.control_plane.admin.post(path, body)


def targets(cluster: Cluster, configuration: Any, folder: Path) -> Counter[tuple[str, str]]:
    """How many pods would be scraped, by their component and the URL after their address."""
    for job in configuration["scrape_configs"]:
        for each in job["kubernetes_sd_configs"]:
            each["kubeconfig_file"] = cluster.control_plane.kubeconfig
    file = folder / "prometheus.yaml"
    # The side-car of Prometheus' pod fills in the number of its shard.
    text = yaml.safe_dump(configuration | {"rule_files": []}).replace("$(SHARD)", "0")
    file.write_text(text, "utf-8")
    found: Counter[tuple[str, str]] = Counter()
    for job in configuration["scrape_configs"]:
        argv = [str(PROGRAMS.path(PROMTOOL)), "check", "service-discovery", "--timeout=10s"]
        argv += [str(file), job["job_name"]]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        for each in json.loads(done.stdout):
            if labels := each.get("labels"):
                component = each["discoveredLabels"][COMPONENT]
                port = labels["__address__"].rpartition(":")[2]
                url = f"{labels['__scheme__']}://:{port}{labels['__metrics_path__']}"
                found[component, url] += 1
    return found


def jobs(operator: PrometheusOperator) -> set[str]:
    configuration = operator.configuration(PROMETHEUS) or {"scrape_configs": []}
    return {each["job_name"] for each in configuration["scrape_configs"]}


def test_every_program_is_scraped(
    cluster: Cluster, operator: PrometheusOperator, tmp_path: Path
) -> None:
    watch(cluster, {})
    wait_for(lambda: len(jobs(operator)) == 2, WAITS_S, "the monitors that need no certificate")
    publish_certificate(cluster)
    wait_for(lambda: len(jobs(operator)) == 3, WAITS_S, "the monitor of the webhooks")
    configuration = operator.configuration(PROMETHEUS)
    assert targets(cluster, configuration, tmp_path) == {
        ("control", "http://:8889/metrics"): 1,
        ("scheduler", "http://:8889/metrics"): 1,
        ("view", "http://:8890/metrics"): 1,
        ("web", "http://:8890/metrics"): 1,
        ("webhooks", "https://:8443/metrics"): 2,
        ("gpu-shim", "http://:8890/metrics"): 2,
    }
    assert sorted(operator.rule_groups(PROMETHEUS)) == sorted(g["name"] for g in rule_groups())


def test_prometheus_that_selects_by_label_gets_it_by_the_command_of_the_page(
    cluster: Cluster, operator: PrometheusOperator
) -> None:
    publish_certificate(cluster)
    watch(cluster, {"matchLabels": {"release": "kube-prometheus-stack"}})
    wait_for(lambda: operator.configuration(PROMETHEUS) is not None, WAITS_S, "a configuration")
    assert (jobs(operator), operator.rule_groups(PROMETHEUS)) == (set(), [])
    (command,) = re.findall(r"`kubectl (label [^`]*kube-prometheus-stack)`", PAGE.read_text())
    cluster.kubectl(*shlex.split(command))
    wait_for(lambda: len(jobs(operator)) == 3, WAITS_S, "all monitors")
    wait_for(lambda: bool(operator.rule_groups(PROMETHEUS)), WAITS_S, "the rules")
