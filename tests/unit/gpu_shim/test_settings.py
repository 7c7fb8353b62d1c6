"""Settings of the node agent in environment variables, and what its page says of them."""

from pathlib import Path

import click
import pytest
import yaml

from gpu_shim.__main__ import main, unknown_settings

ROOT = Path(__file__).parents[3]
SHIM = ROOT / "manifests" / "base" / "gpu-shim"
#: Option -> what the page says of it where it is not given.
DEFAULTS = {
    "--audit": "on",
    "--cards": "`ours`",
    "--context-mib": "640",
    "--deliver": "`cdi`",
    "--evict": "off",
    "--evict-after-s": "30",
    "--lease-ms": "250",
    "--libraries": "`/usr/lib/ballast`",
    "--listen": "`127.0.0.1:8890`",
    "--longest-gap-ms": "1000",
    "--mode": "`pool`",
    "--precision-percent": "5",
    "--restart-unprotected": "off",
    "--spared-namespaces": "`gpu-operator,nvidia-gpu-operator,kube-system`",
    "--state": "`/var/lib/ballast`",
}


def test_misspelt_variable_is_reported_with_the_one_that_was_meant() -> None:
    given = {"BALLAST_AGENT_DELIEVER": "environment", "BALLAST_AGENT_MODE": "fair", "PATH": "/bin"}
    assert unknown_settings(given) == {"BALLAST_AGENT_DELIEVER": "BALLAST_AGENT_DELIVER"}


def test_variables_that_kubelet_makes_of_services_are_passed_over() -> None:
    given = {"BALLAST_AGENT_SERVICE_HOST": "10.0.0.1", "BALLAST_AGENT_PORT": "tcp://10.0.0.1:80"}
    assert unknown_settings(given | {"BALLAST_AGENT_PORT_80_TCP": "tcp://10.0.0.1:80"}) == {}


def test_every_setting_that_is_shipped_is_known() -> None:
    config = yaml.safe_load((SHIM / "config.yaml").read_text("utf-8"))
    assert unknown_settings(config["data"]) == {}


def test_as_installed_nothing_is_ended_and_cards_are_the_device_plugins() -> None:
    config = yaml.safe_load((SHIM / "config.yaml").read_text("utf-8"))
    given = {key: text for key, text in config["data"].items() if not key.endswith("IMAGE")}
    assert given == {
        "BALLAST_AGENT_MODE": "pool",
        "BALLAST_AGENT_DELIVER": "cdi",
        "BALLAST_AGENT_CARDS": "plugin",
        "BALLAST_AGENT_EVICT": "false",
        "BALLAST_AGENT_RESTART_UNPROTECTED": "false",
    }
    assert "--nri=/run/nri/nri.sock" in (SHIM / "daemonset.yaml").read_text("utf-8")


@pytest.mark.parametrize("option", DEFAULTS)
def test_the_page_says_what_an_option_is_where_it_is_not_given(option: str) -> None:
    page = (ROOT / "docs" / "gpu-shim.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `--")]
    (cells,) = [(row[1], row[2]) for row in rows if _named(row[1], option)]
    assert DEFAULTS[option] in cells[1]
    (found,) = (each for each in main.params if option in each.opts)
    assert isinstance(found, click.Option)
    word = DEFAULTS[option].strip("`")
    if found.is_flag:
        assert found.default is (word == "on")
    else:
        assert f"{found.default:g}" == word if word.isdigit() else str(found.default) == word


def _named(cell: str, option: str) -> bool:
    """Whether the cell names the option, alone or with others."""
    return any(part.split()[0] == option for part in cell.split("`")[1::2] if part.strip())
