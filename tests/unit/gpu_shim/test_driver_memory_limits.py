"""Caps in the driver follow the tenants, where the driver has caps at all."""

from fractions import Fraction
from pathlib import Path

import pynvml
import pytest

from gpu_shim.agent.driver_memory_limits import MIB, DriverLimits, NoLimitsError, group_of
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.policy.shares import Claim

UID = "0f3b7a1e-2c4d-4e5f-8a9b-0c1d2e3f4a5b"
SYSTEMD = (
    f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
)
CGROUPFS = f"kubepods/burstable/pod{UID}"


def tenant(cap_mib: int = 64) -> SharingPod:
    claim = Claim(UID, Fraction(0), Fraction(1))
    return SharingPod(UID, "team", "a-0", claim, (ContainerCard("GPU-1", cap_mib),))


class Driver:
    """A driver that notes what it was told, or has no limits, or refuses."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.told: list[tuple[str, str, int | None]] = []

    def __call__(self, uuid: str, group: str, n_bytes: int | None) -> None:
        self.told.append((uuid, group, n_bytes))
        if self.error is not None:
            raise self.error


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    (tmp_path / CGROUPFS).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("group", [SYSTEMD, CGROUPFS])
def test_a_pods_group_is_found_under_either_driver_of_kubelet(tmp_path: Path, group: str) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    (tmp_path / group / "cri-containerd-1.scope").mkdir(parents=True)
    assert group_of(UID, tmp_path) == f"/{group}"


def test_without_cgroup_v2_no_group_is_found(tmp_path: Path) -> None:
    (tmp_path / CGROUPFS).mkdir(parents=True)
    assert group_of(UID, tmp_path) == ""


def test_a_cap_is_set_once_changed_live_and_lifted_with_the_pod(root: Path) -> None:
    driver = Driver()
    limits = DriverLimits(driver, root)
    for tenants in ([tenant()], [tenant()], [tenant(128)], []):
        assert limits.keep(tenants) == {}
    group = f"/{CGROUPFS}"
    assert driver.told == [
        ("GPU-1", group, 64 * MIB),
        ("GPU-1", group, 128 * MIB),
        ("GPU-1", group, None),
    ]


def test_a_pod_whose_group_comes_later_has_its_cap_then(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("")
    driver = Driver()
    limits = DriverLimits(driver, tmp_path)
    limits.keep([tenant()])
    assert driver.told == []
    (tmp_path / CGROUPFS).mkdir(parents=True)
    limits.keep([tenant()])
    assert driver.told == [("GPU-1", f"/{CGROUPFS}", 64 * MIB)]


def test_a_driver_without_limits_is_asked_once(root: Path) -> None:
    driver = Driver(NoLimitsError("not found"))
    limits = DriverLimits(driver, root)
    for _ in range(3):
        assert limits.keep([tenant()]) == {}
    assert len(driver.told) == 1
    assert limits.is_supported is False


def test_what_the_driver_refuses_is_told_and_tried_again(root: Path) -> None:
    driver = Driver(pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION))
    limits = DriverLimits(driver, root)
    for _ in range(2):
        assert "refused a limit" in limits.keep([tenant()])[UID]
    assert len(driver.told) == 2
