"""Settings of the node agent in environment variables."""

from pathlib import Path

import yaml

from gpu_shim.__main__ import unknown_settings

SHIM = Path(__file__).parents[3] / "manifests" / "base" / "gpu-shim"


def test_misspelt_variable_is_reported_with_the_one_that_was_meant() -> None:
    given = {"BALLAST_AGENT_DELIEVER": "environment", "BALLAST_AGENT_MODE": "fair", "PATH": "/bin"}
    assert unknown_settings(given) == {"BALLAST_AGENT_DELIEVER": "BALLAST_AGENT_DELIVER"}


def test_variables_that_kubelet_makes_of_services_are_passed_over() -> None:
    given = {"BALLAST_AGENT_SERVICE_HOST": "10.0.0.1", "BALLAST_AGENT_PORT": "tcp://10.0.0.1:80"}
    assert unknown_settings(given | {"BALLAST_AGENT_PORT_80_TCP": "tcp://10.0.0.1:80"}) == {}


def test_every_setting_that_is_shipped_is_known() -> None:
    config = yaml.safe_load((SHIM / "config.yaml").read_text("utf-8"))
    assert unknown_settings(config["data"]) == {}
