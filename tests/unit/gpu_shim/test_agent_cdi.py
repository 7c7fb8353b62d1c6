"""The CDI device of a card, from the CDI specifications on the node."""

import json
import os
from pathlib import Path

import pytest

from gpu_shim.agent.cdi import CdiDevices
from gpu_shim.agent.nri.adjust import VISIBLE, Delivery, Node, Way, deliver
from gpu_shim.agent.proto import nri_pb2 as pb

PLUGIN = "k8s.device-plugin.nvidia.com/gpu"
TOOLKIT = "nvidia.com/gpu"
CONTAINER = pb.Container(name="main")


def write(path: Path, kind: str, *names: str) -> None:
    """A specification, as JSON or YAML by its name."""
    edits = {"deviceNodes": [{"path": "/dev/nvidia0"}]}
    devices = [{"name": name, "containerEdits": edits} for name in names]
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices}))
    else:
        lines = "".join(f"- name: {name!r}\n" for name in names)
        path.write_text(f"cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n{lines}")


@pytest.fixture
def cdi(tmp_path: Path) -> CdiDevices:
    return CdiDevices((tmp_path / "etc", tmp_path / "run"))


def test_the_operators_node_has_the_kind_of_its_device_plugin(
    tmp_path: Path, cdi: CdiDevices
) -> None:
    write(tmp_path / "run" / "management.yaml", "management.nvidia.com/gpu", "all")
    write(tmp_path / "run" / "k8s.device-plugin.nvidia.com-gpu.json", PLUGIN, "GPU-0", "GPU-1")
    assert cdi.name_of("GPU-1") == f"{PLUGIN}=GPU-1"


def test_the_toolkits_kind_comes_first(tmp_path: Path, cdi: CdiDevices) -> None:
    write(tmp_path / "run" / "plugin.json", PLUGIN, "GPU-0")
    write(tmp_path / "etc" / "nvidia.yaml", TOOLKIT, "0", "GPU-0", "all")
    assert cdi.name_of("GPU-0") == f"{TOOLKIT}=GPU-0"


def test_a_card_that_only_another_vendors_kind_names_is_found(
    tmp_path: Path, cdi: CdiDevices
) -> None:
    write(tmp_path / "etc" / "own.yaml", "example.com/gpu", "GPU-0")
    assert cdi.name_of("GPU-0") == "example.com/gpu=GPU-0"


def test_a_specification_that_changes_is_read_again(tmp_path: Path, cdi: CdiDevices) -> None:
    assert cdi.name_of("GPU-0") == ""
    path = tmp_path / "run" / "plugin.json"
    write(path, PLUGIN, "GPU-0")
    assert cdi.name_of("GPU-0") == f"{PLUGIN}=GPU-0"
    write(path, PLUGIN, "GPU-1")
    os.utime(path, ns=(1, 1))
    assert cdi.name_of("GPU-0") == ""
    path.unlink()
    assert cdi.name_of("GPU-1") == ""


@pytest.mark.parametrize("text", ["", "{", "[]", "kind: a/b", "kind: a/b\ndevices: [1]", "\x00"])
def test_a_file_that_is_no_specification_hides_no_other(
    tmp_path: Path, cdi: CdiDevices, text: str
) -> None:
    write(tmp_path / "run" / "plugin.json", PLUGIN, "GPU-0")
    (tmp_path / "run" / "broken.yaml").write_text(text)
    (tmp_path / "run" / "broken.json").write_text(text)
    assert cdi.name_of("GPU-0") == f"{PLUGIN}=GPU-0"


def test_a_kind_that_is_given_is_taken(tmp_path: Path) -> None:
    assert CdiDevices((tmp_path,), "a.example/gpu").name_of("GPU-0") == "a.example/gpu=GPU-0"


def delivered(delivery: Delivery, *uuids: str) -> tuple[Way | str, str]:
    """How the cards came, and NVIDIA's variable."""
    made = deliver(uuids, delivery, CONTAINER)
    way = "cdi" if made.CDI_devices else "files" if made.linux.devices else "environment"
    return way, {each.key: each.value for each in made.env}[VISIBLE]


def test_cards_without_a_device_fall_back_and_a_condition_says_so(
    tmp_path: Path, cdi: CdiDevices
) -> None:
    write(tmp_path / "run" / "plugin.json", PLUGIN, "GPU-0")
    by_environment = Delivery(cdi=cdi)
    nodes = {"GPU-1": [Node("/dev/nvidia1", 195, 1)]}
    by_files = Delivery(driver=tmp_path, nodes=nodes, cdi=cdi)
    assert delivered(by_environment, "GPU-0") == ("cdi", "void")
    assert delivered(by_environment, "GPU-1") == ("environment", "GPU-1")
    assert delivered(by_environment, "GPU-0", "GPU-1") == ("environment", "GPU-0,GPU-1")
    assert delivered(by_files, "GPU-1") == ("files", "void")
    assert by_environment.problems(["GPU-0"]) == []
    (problem,) = by_environment.problems(["GPU-0", "GPU-1"])
    assert "names GPU-1: delivered by environment" in problem


def test_a_container_without_cards_gets_none(cdi: CdiDevices) -> None:
    assert delivered(Delivery(cdi=cdi))[1] == "void"
