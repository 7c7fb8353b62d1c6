"""The sources of the programs, and kube-scheduler's configuration; without processes."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.controlplane.binaries import (
    PROGRAMS,
    cache_folder,
    find_binaries,
    modules_digest,
)
from tests.support.controlplane.builder import MODULES, SOURCES, link_flags
from tests.support.controlplane.ports import free_ports
from tests.support.controlplane.process import ControlPlaneError
from tests.support.controlplane.schedulerconfig import write_scheduler_config

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: "", qps: 77}
leaderElection: {leaderElect: true}
profiles: [{schedulerName: ours}]
extenders: [{urlPrefix: "http://127.0.0.1:8888", filterVerb: filter}]
"""


def _programs(folder: Path, names: tuple[str, ...] = PROGRAMS) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_given_folder_is_used_when_it_has_every_program(tmp_path: Path) -> None:
    given = _programs(tmp_path / "given")
    found = find_binaries({"BALLAST_CONTROLPLANE_BIN": str(given)})
    assert found == {name: given / name for name in PROGRAMS}


def test_given_folder_that_lacks_a_program_is_refused_by_name(tmp_path: Path) -> None:
    given = _programs(tmp_path / "given", ("etcd", "kube-apiserver", "kubectl", "kwok"))
    with pytest.raises(ControlPlaneError, match="has no kube-controller-manager, kube-scheduler"):
        find_binaries({"BALLAST_CONTROLPLANE_BIN": str(given)})


def test_file_that_cannot_be_executed_is_no_program(tmp_path: Path) -> None:
    given = _programs(tmp_path / "given")
    (given / "kwok").chmod(0o644)
    with pytest.raises(ControlPlaneError, match="has no kwok"):
        find_binaries({"BALLAST_CONTROLPLANE_BIN": str(given)})


def test_kubebuilder_assets_are_completed_from_the_cache(tmp_path: Path) -> None:
    assets = _programs(tmp_path / "assets", ("etcd", "kube-apiserver", "kubectl"))
    environ = {"KUBEBUILDER_ASSETS": str(assets), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    cache = _programs(cache_folder(environ))
    found = find_binaries(environ)
    assert found["kube-apiserver"] == assets / "kube-apiserver"
    assert found["kube-scheduler"] == cache / "kube-scheduler"


def test_another_pin_is_another_cache_folder(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    shutil.copytree(MODULES, modules)
    before = modules_digest(modules)
    assert before == modules_digest(MODULES)
    with (modules / "kwok" / "go.sum").open("a") as sums:
        sums.write("\n")
    assert modules_digest(modules) != before


def test_every_program_is_a_tool_of_its_module() -> None:
    for source in SOURCES.values():
        pinned = (source.module / "go.mod").read_text()
        assert source.package in pinned.partition("require")[0]


def test_programs_are_told_the_release_they_are() -> None:
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in link_flags()
    assert "k8s.io/kubernetes v1.36.3" in (MODULES / "kubernetes" / "go.mod").read_text()


def test_ports_are_never_given_twice() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50


@pytest.mark.parametrize("wrapping", ["file", "config-map"])
def test_only_addresses_and_election_of_a_shipped_configuration_change(
    tmp_path: Path, wrapping: str
) -> None:
    folder = tmp_path / "shipped"
    folder.mkdir()
    config_map = json.dumps({"kind": "ConfigMap", "data": {"scheduler.yaml": CONFIG}})
    (folder / "a.yaml").write_text("kind: Deployment")
    (folder / "b.yaml").write_text(CONFIG if wrapping == "file" else config_map)
    written = write_scheduler_config(
        tmp_path / "out.json", folder, tmp_path / "kubeconfig", "http://127.0.0.1:9999"
    )
    config = json.loads(written)
    assert config["clientConnection"] == {"kubeconfig": str(tmp_path / "kubeconfig"), "qps": 77}
    assert config["leaderElection"] == {"leaderElect": False}
    assert config["extenders"] == [{"urlPrefix": "http://127.0.0.1:9999", "filterVerb": "filter"}]
    assert config["profiles"] == [{"schedulerName": "ours"}]


def test_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Deployment")
    with pytest.raises(ValueError, match="no KubeSchedulerConfiguration"):
        write_scheduler_config(tmp_path / "out.json", tmp_path, tmp_path / "kubeconfig")
