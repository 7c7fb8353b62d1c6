"""The kube-scheduler configuration of a run: ours or the stock one, with this run's addresses.

The shipped configuration names a kubeconfig inside its pod and an extender at a fixed port. Only
these and leader election are replaced, so that tests and benchmarks use the shipped file.
"""

import json
from pathlib import Path
from typing import Any

import yaml

STOCK: dict[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    # The same client limits as in our configuration, so that the two can be compared.
    "clientConnection": {"qps": 1000, "burst": 2000},
}


def write_scheduler_config(
    target: Path, source: Path | None, kubeconfig: Path, extender_url: str = ""
) -> str:
    """Write `source` (None: the stock configuration) for this run; returns the written text.

    `source` is a KubeSchedulerConfiguration, a manifest with a ConfigMap that has one, or a folder
    of such files.
    """
    config = dict(STOCK) if source is None else read_scheduler_config(source)
    client = dict(config.get("clientConnection", {}))
    client["kubeconfig"] = str(kubeconfig)
    config["clientConnection"] = client
    config["leaderElection"] = {"leaderElect": False}
    if extender_url:
        config["extenders"] = [
            each | {"urlPrefix": extender_url} for each in config.get("extenders", [])
        ]
    text = json.dumps(config, indent=1)
    target.write_text(text)
    return text


def read_scheduler_config(source: Path) -> dict[str, Any]:
    """The KubeSchedulerConfiguration in a file or folder; raises ValueError if there is none."""
    files = sorted(source.glob("*.yaml")) if source.is_dir() else [source]
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            found = _config_in(document)
            if found is not None:
                return found
    raise ValueError(f"{source}: no KubeSchedulerConfiguration in it")


def _config_in(document: Any) -> dict[str, Any] | None:
    if not isinstance(document, dict):
        return None
    if document.get("kind") == "KubeSchedulerConfiguration":
        return document
    if document.get("kind") == "ConfigMap":
        for text in document.get("data", {}).values():
            if "KubeSchedulerConfiguration" in text:
                return _config_in(yaml.safe_load(text))
    return None
