"""The kit for a machine with a GPU, as far as it can be looked at without one."""

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

from gpu_shim.kit.make import pins
from tests.gpu_node import kit, tenants
from tests.support.node import settings

PLACE: Final = settings.Place(
    name="node-a",
    address="10.213.0.2",
    pods="10.214.0.0/26",
    all_pods="10.214.0.0/24",
    cgroup="/a",
    plugins=Path("/cni"),
    snapshotter="overlayfs",
    sandbox_image="pause",
    runtimes={"nvidia": Path("/kit/nvidia-container-runtime")},
)


def test_the_lock_file_has_every_package_of_the_kit() -> None:
    assert len(pins(kit.PACKAGES)) == len(kit.PACKAGES)


def test_a_program_of_the_kit_finds_the_libraries_that_were_copied_with_it(tmp_path: Path) -> None:
    for folder in ("bin", "tools", "libraries"):
        (tmp_path / folder).mkdir()
    kit.copy_tool("grep", tmp_path)
    done = subprocess.run(
        [str(tmp_path / "bin" / "grep"), "-c", "a"],
        input=b"a\nb\n",
        check=True,
        capture_output=True,
    )
    assert done.stdout == b"1\n"
    assert not list((tmp_path / "libraries").glob("libc.so*")), "that is the machine's own"
    assert (tmp_path / "tools" / "grep").stat().st_size == Path(
        shutil.which("grep") or ""
    ).stat().st_size


def test_containerd_is_told_of_a_further_runtime() -> None:
    plugins = tomllib.loads(settings.containerd(PLACE))["plugins"]
    runtimes = plugins["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert set(runtimes) == {"runc", "nvidia"}
    assert runtimes["nvidia"]["options"] == {"BinaryName": "/kit/nvidia-container-runtime"}


def test_pods_of_the_story_may_share_a_card() -> None:
    (volume,) = tenants.pod("a", tenants.job("gemm", 1), "0.5")["spec"]["volumes"]
    assert "hostPath" not in volume, "the API server's policies refuse that"
