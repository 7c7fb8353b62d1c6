"""The driver's figures compared with the tables."""

import os
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from extender.api.reasons import Reason
from gpu_shim.agent.audit import Auditor, CardUsers, Sight
from gpu_shim.agent.cgroups import pod_of
from gpu_shim.agent.nvml import Nvml, NvmlError
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.policy.shares import Claim
from tests.integration.gpu_shim.containers import Scene, until
from tests.support.fakecuda import SECOND, UUID
from tests.support.fakecuda import Card as FakeCard


@pytest.fixture
def nvml(scene: Scene, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """The fake driver's NVML, with a card whose contexts take 30 MiB."""
    scene.card = FakeCard(scene.card.path, context_mib=30)
    monkeypatch.setenv("FAKECUDA_STATE", str(scene.card.path))
    # A library maps its card once; a copy is another library.
    return Nvml(str(shutil.copy(driver / "libnvidia-ml.so.1", scene.root / "nvml.so")))


def tenant(cap_mib: int = 64) -> SharingPod:
    return SharingPod(
        "a", "team", "p", Claim("a", Fraction(0), Fraction(1)), (ContainerCard(UUID, cap_mib),)
    )


def sight(nvml: Nvml) -> Sight:
    return {UUID: nvml.processes(UUID)}


async def test_contexts_are_charged_from_the_drivers_own_figures(scene: Scene, nvml: Nvml) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); plain(10 * MIB); tell(1); hear(); tell([memory(), plain(25 * MIB)[0]])"
    program = await scene.run("a", code)
    await program.answer()
    auditor = Auditor(lambda pid: "")
    ledger = CardUsers([tenant()], {"a": scene.table("a")})
    assert auditor.look(ledger, sight(nvml), 0.0) == []
    await program.say()
    assert await program.answer() == [[24, 64], 2]


GREEDY = """
begin(); free = memory()[0]
tell([free, plain(free * MIB)[0]]); hear()
"""


@pytest.mark.parametrize("real_mib", [300, 500, 600])
async def test_a_program_that_takes_all_that_it_is_told_is_free_is_never_found(
    scene: Scene, nvml: Nvml, real_mib: int
) -> None:
    """A context takes its memory when it is made, a second before the driver is asked."""
    await scene.stop()
    scene.card = FakeCard(scene.card.path, context_mib=real_mib)
    scene.context_mib = 512
    scene.start()
    scene.container("a", cap_mib=2048)
    program = await scene.run("a", GREEDY)
    free, status = await program.answer()
    assert (free, status) == (2048 - 512, 0)
    auditor = Auditor(lambda pid: "a", context_mib=512)
    ledger = CardUsers([tenant(cap_mib=2048)], {"a": scene.table("a")})
    found = [each for at in range(5) for each in auditor.look(ledger, sight(nvml), float(at))]
    assert [each for each in found if each.is_evictable] == []
    if real_mib <= 512:
        assert found == []
    seen_mib = auditor.seen["a", UUID] >> 20
    assert seen_mib == 1536 + real_mib


@pytest.mark.parametrize("context_mib", [31, 62, 63])
async def test_what_is_said_to_be_free_can_be_had_in_one_piece(
    scene: Scene, context_mib: int
) -> None:
    """An allocation is charged in whole pages of 2 MiB, so no odd MiB is said to be free."""
    await scene.stop()
    scene.context_mib = context_mib
    scene.start()
    scene.container("a", cap_mib=64)
    code = """
begin(); left, total = c_size_t(), c_size_t()
cuda.cuMemGetInfo_v2(byref(left), byref(total)); tell([left.value, plain(left.value)[0]])
"""
    free_bytes, status = await scene.ask("a", code)
    assert status == 0
    assert free_bytes > 0


async def test_a_context_is_given_back_when_it_ends(scene: Scene) -> None:
    await scene.stop()
    scene.context_mib = 30
    scene.start()
    scene.container("a", cap_mib=64)
    code = """
begin(); first = memory()[0]; cuda.cuDevicePrimaryCtxRelease_v2(0)
context = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(context), 0)
cuda.cuDevicePrimaryCtxRetain(byref(context), 0); tell([first, memory()[0]])
"""
    assert await scene.ask("a", code) == [34, 34]
    await until(lambda: scene.used_mib("a") == 0)


async def test_what_a_program_frees_while_the_driver_answers_is_not_charged(
    scene: Scene, nvml: Nvml
) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); at = plain(20 * MIB)[1]; tell(1); hear(); free('plain', at); tell(1); hear()"
    code += "; tell([memory()[0], plain(30 * MIB)[0]]); hear()"
    program = await scene.run("a", code)
    await program.answer()
    auditor, table = Auditor(lambda pid: "a"), scene.table("a")
    ledger = CardUsers([tenant()], {"a": table})
    auditor.look(ledger, sight(nvml), 0.0)
    before, seen = {"a": [table.used_bytes(0)]}, sight(nvml)
    await program.say()
    await program.answer()
    auditor.look(ledger, seen, 1.0, before)
    await program.say()
    assert await program.answer() == [34, 0]


def test_memory_that_one_look_alone_shows_is_not_charged() -> None:
    auditor, key = Auditor(lambda pid: ""), ("a", UUID)
    charged = [auditor._overhead(key, beyond, 1) for beyond in (30, 30, 9000, 30, 40, 50, 0, 50)]
    assert charged == [30, 30, 30, 30, 30, 40, 40, 40]


async def test_a_process_without_the_library_is_found_and_counts(scene: Scene, nvml: Nvml) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); plain(50 * MIB); tell(memory()); hear()"
    bare = await scene.run("a", code, LD_PRELOAD="")
    assert (await bare.answer())[1] == 16384
    auditor = Auditor(lambda pid: "a" if pid == bare.process.pid else "")
    assert auditor.look(CardUsers([tenant()]), sight(nvml), 0.0) == []
    late = auditor.look(CardUsers([tenant()]), sight(nvml), 3.0)
    assert [each.reason for each in late] == [Reason.GPU_UNPROTECTED, Reason.GPU_MEMORY_OVER_CAP]
    assert f"team/p: process {bare.process.pid}" in late[0].message
    assert late[1].message == f"team/p: has 80 MiB of {UUID}, may have 64"
    assert auditor.look(CardUsers([tenant(cap_mib=100)]), sight(nvml), 4.0)[1:] == []


async def test_a_pod_that_claims_the_process_of_another_hides_nothing(
    scene: Scene, nvml: Nvml
) -> None:
    scene.container("a", cap_mib=64)
    await scene.ask("a", "begin(); tell(1)")
    bare = await scene.run("b", "begin(); plain(50 * MIB); tell(1); hear()", LD_PRELOAD="")
    await bare.answer()
    scene.table("a").take_slot(bare.process.pid)
    other = replace(tenant(), uid="b", claim=Claim("b", Fraction(0), Fraction(1)))
    ledger = CardUsers([tenant(), other], {"a": scene.table("a")})
    auditor = Auditor(lambda pid: "b" if pid == bare.process.pid else "")
    for now_s in (0.0, 3.0):
        found = auditor.look(ledger, sight(nvml), now_s)
    assert [(each.uid, each.reason) for each in found] == [
        ("b", Reason.GPU_UNPROTECTED),
        ("b", Reason.GPU_MEMORY_OVER_CAP),
    ]


async def test_a_pod_that_claims_the_process_of_another_does_not_have_it_evicted(
    scene: Scene, nvml: Nvml
) -> None:
    for name in "ab":
        scene.container(name, cap_mib=64)
    await scene.ask("a", "begin(); tell(1)")
    victim = await scene.run("b", "begin(); plain(20 * MIB); tell(1); hear()")
    await victim.answer()
    scene.table("a").take_slot(victim.process.pid)
    other = replace(tenant(), uid="b", claim=Claim("b", Fraction(0), Fraction(1)))
    auditor = Auditor(lambda pid: "b" if pid == victim.process.pid else "")
    for tables in ("ab", "ba"):
        ledger = CardUsers([tenant(), other], {name: scene.table(name) for name in tables})
        for now_s in (0.0, 3.0):
            assert auditor.look(ledger, sight(nvml), now_s) == []


async def test_a_pod_on_a_card_that_is_given_to_others_is_found(scene: Scene, nvml: Nvml) -> None:
    scene.container("a", cap_mib=64)
    bare = await scene.run("a", "begin(); tell(1); hear()", LD_PRELOAD="")
    await bare.answer()
    auditor = Auditor(lambda pid: "b")
    both = CardUsers([tenant(), replace(tenant(), uid="b", cards=(ContainerCard(SECOND, 1),))])
    auditor.look(both, sight(nvml), 0.0)
    (found,) = auditor.look(both, sight(nvml), 3.0)
    assert (found.uid, found.reason) == ("b", Reason.GPU_NOT_GIVEN)
    assert found.message == f"process {bare.process.pid} uses {UUID}, which is given to others"


async def test_processes_of_the_host_and_of_who_has_the_card_alone_are_let_be(
    scene: Scene, nvml: Nvml
) -> None:
    scene.container("a", cap_mib=64)
    bare = await scene.run("a", "begin(); tell(1); hear()", LD_PRELOAD="")
    await bare.answer()
    for pod, ledger in (("", CardUsers([tenant()])), ("c", CardUsers([], whole={"c": (UUID,)}))):
        auditor = Auditor(lambda pid, pod=pod: pod)  # type: ignore[misc]
        for now_s in (0.0, 3.0):
            assert auditor.look(ledger, sight(nvml), now_s) == []


def test_a_card_that_is_not_there_is_an_error_that_names_the_call(nvml: Nvml) -> None:
    with pytest.raises(NvmlError, match="nvmlDeviceGetHandleByUUID: "):
        nvml.processes("GPU-none")


@pytest.mark.parametrize(
    "line",
    [
        "0::/kubepods/burstable/pod00112233-4455-6677-8899-aabbccddeeff/cri-1",
        "0::/../../../besteffort/pod00112233-4455-6677-8899-aabbccddeeff/cri-1",
        "0::/kubepods.slice/kubepods-pod00112233_4455_6677_8899_aabbccddeeff.slice/x.scope",
    ],
)
def test_a_processs_pod_is_told_by_its_group(tmp_path: Path, line: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"{line}\n")
    assert pod_of(7, tmp_path) == "00112233-4455-6677-8899-aabbccddeeff"
    assert pod_of(8, tmp_path) == ""
    assert pod_of(os.getpid()) == ""
