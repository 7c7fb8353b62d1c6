"""What the driver says against what the tables say."""

import os
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from gpu_shim.agent.audit import OVER_CAP, UNPROTECTED, Auditor
from gpu_shim.agent.cgroups import pod_of
from gpu_shim.agent.nvml import Nvml, NvmlError
from gpu_shim.agent.tenants import Tenant
from gpu_shim.arbiter.container import Card
from gpu_shim.policy.shares import Claim
from tests.integration.gpu_shim.scene import Scene
from tests.support.fakecuda import UUID
from tests.support.fakecuda import Card as FakeCard


@pytest.fixture
def nvml(scene: Scene, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """The fake driver's NVML, with a card whose contexts take 30 MiB."""
    scene.card = FakeCard(scene.card.path, context_mib=30)
    monkeypatch.setenv("FAKECUDA_STATE", str(scene.card.path))
    # A library maps its card once; a copy is another library.
    return Nvml(str(shutil.copy(driver / "libnvidia-ml.so.1", scene.root / "nvml.so")))


def tenant(cap_mib: int = 64) -> Tenant:
    return Tenant("a", "team", "p", Claim("a", Fraction(0), Fraction(1)), (Card(UUID, cap_mib),))


async def test_contexts_are_charged_from_the_drivers_own_figures(scene: Scene, nvml: Nvml) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); plain(10 * MIB); tell(1); hear(); tell([memory(), plain(25 * MIB)[0]])"
    program = await scene.run("a", code)
    await program.answer()
    auditor = Auditor(nvml, lambda pid: "")
    assert auditor.look([tenant()], {"a": scene.table("a")}, 0.0) == []
    await program.say()
    assert await program.answer() == [[24, 64], 2]


async def test_a_process_without_the_library_is_found_and_counts(scene: Scene, nvml: Nvml) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); plain(50 * MIB); tell(memory()); hear()"
    bare = await scene.run("a", code, LD_PRELOAD="")
    assert (await bare.answer())[1] == 16384
    auditor = Auditor(nvml, lambda pid: "a" if pid == bare.process.pid else "")
    (first,) = auditor.look([tenant()], {}, 0.0)
    assert first.reason == UNPROTECTED
    assert f"team/p: process {bare.process.pid}" in first.message
    late = auditor.look([tenant()], {}, 3.0)
    assert [each.reason for each in late] == [UNPROTECTED, OVER_CAP]
    assert late[1].message == f"team/p: has 80 MiB of {UUID}, may have 64"
    assert auditor.look([tenant(cap_mib=100)], {}, 4.0)[1:] == []


async def test_processes_of_others_are_not_a_pods(scene: Scene, nvml: Nvml) -> None:
    scene.container("a", cap_mib=64)
    bare = await scene.run("a", "begin(); tell(1); hear()", LD_PRELOAD="")
    await bare.answer()
    assert Auditor(nvml, lambda pid: "b").look([tenant()], {}, 0.0) == []


def test_a_card_that_is_not_there_is_an_error_that_names_the_call(nvml: Nvml) -> None:
    with pytest.raises(NvmlError, match="nvmlDeviceGetHandleByUUID: 6"):
        nvml.processes("GPU-none")


@pytest.mark.parametrize(
    "line",
    [
        "0::/kubepods/burstable/pod00112233-4455-6677-8899-aabbccddeeff/cri-1",
        "0::/kubepods.slice/kubepods-pod00112233_4455_6677_8899_aabbccddeeff.slice/x.scope",
    ],
)
def test_a_processs_pod_is_told_by_its_group(tmp_path: Path, line: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"{line}\n")
    assert pod_of(7, tmp_path) == "00112233-4455-6677-8899-aabbccddeeff"
    assert pod_of(8, tmp_path) == ""
    assert pod_of(os.getpid()) == ""
