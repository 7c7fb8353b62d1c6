"""What containers get, according to the ledger."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from extender.api.demand import FRACTION_CONTAINER
from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row, RowState
from extender.api.names import ANNOTATION_CARDS
from extender.api.objects import ObjectMeta
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.nri.adjust import Delivery, Node, Way
from gpu_shim.agent.nri.plugin import NodePlugin, RunningContainer
from gpu_shim.agent.nri.session import Refusal
from gpu_shim.agent.proto import nri_pb2 as pb
from gpu_shim.home import INSIDE, LIBRARIES

DEVICES = [Device(index=at, memory_mib=16384, uuid=f"GPU-{at}") for at in range(2)]
CARDS = {ANNOTATION_CARDS: "0:500:8192"}


class Doors:
    """Stands where the arbiter stands: every container fits."""

    def __init__(self) -> None:
        self.containers: dict[str, object] = {}

    def admit(self, claim: Any, path: Path, cards: Any) -> str:
        return "it does not fit" if claim.name == "misfit" else ""

    def remove(self, name: str) -> None:
        pass


def row(uid: str, milli: int = 500, state: RowState = "bound", index: int = 0) -> Row:
    cards = [CardShare(index, milli, 8192)]
    return Row(uid=uid, namespace="team", name=f"pod-{uid}", cards=cards, state=state)


def plugin(tmp_path: Path, *rows: Row, way: Way = "cdi", **options: Any) -> NodePlugin:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for name in LIBRARIES:
        (libraries / name).touch()
    agent = Agent("n", DEVICES, Doors(), libraries, tmp_path / "pods")  # type: ignore[arg-type]
    agent.apply(GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=list(rows))))
    nodes = {"": [Node("/dev/nvidiactl", 195, 255)], "GPU-0": [Node("/dev/nvidia0", 195, 0)]}
    delivery = Delivery(way, Path("/driver") if way == "files" else None, nodes)
    return NodePlugin(agent, delivery, tmp_path / "nri", patience_s=0.0, **options)


def request(uid: str, notes: dict[str, str], **fields: Any) -> pb.CreateContainerRequest:
    pod = pb.PodSandbox(id=f"s-{uid}", uid=uid, namespace="team", name="p", annotations=notes)
    container = pb.Container(id="c-1", name=fields.pop("name", "main"), **fields)
    return pb.CreateContainerRequest(pod=pod, container=container)


def env(made: pb.ContainerAdjustment) -> dict[str, str]:
    return {each.key: each.value for each in made.env}


async def test_a_pod_that_is_none_of_ours_is_left_exactly_as_it_is(tmp_path: Path) -> None:
    answer = await plugin(tmp_path, row("u")).create(request("other", {"a": "b"}))
    assert answer == pb.CreateContainerResponse()


async def test_a_pod_that_shares_a_card_gets_library_caps_socket_and_card(tmp_path: Path) -> None:
    made = (await plugin(tmp_path, row("u")).create(request("u", CARDS))).adjust
    home = tmp_path / "pods" / "u"
    assert [(mount.source, mount.destination) for mount in made.mounts] == [
        (str(home), INSIDE),
        (str(home / "ld.so.preload"), "/etc/ld.so.preload"),
    ]
    assert all("ro" in mount.options and "nosuid" in mount.options for mount in made.mounts)
    assert (home / "ld.so.preload").read_text().splitlines() == [
        f"{INSIDE}/lib/{name}" for name in LIBRARIES
    ]
    assert (home / "gpu.conf").read_text() == "card GPU-0 8192\n"
    assert [device.name for device in made.CDI_devices] == ["nvidia.com/gpu=GPU-0"]
    assert env(made) == {"NVIDIA_VISIBLE_DEVICES": "void"}


async def test_a_row_counts_without_the_annotation_and_before_it_is_marked_bound(
    tmp_path: Path,
) -> None:
    made = await plugin(tmp_path, row("u", state="reserved")).create(request("u", {}))
    assert len(made.adjust.mounts) == 2


async def test_a_container_waits_a_moment_for_its_pods_row(tmp_path: Path) -> None:
    served = plugin(tmp_path)
    served.patience_s = 20.0
    waiting = asyncio.create_task(served.create(request("u", CARDS)))
    await asyncio.sleep(0)
    served.agent.apply(GpuNode(metadata=ObjectMeta(name="n")))
    await asyncio.sleep(0)
    served.agent.apply(GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=[row("u")])))
    assert len((await waiting).adjust.mounts) == 2


async def test_nvidias_runtime_is_told_by_the_environment(tmp_path: Path) -> None:
    made = (await plugin(tmp_path, row("u"), way="environment").create(request("u", CARDS))).adjust
    assert env(made) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }


async def test_without_nvidias_tools_driver_and_device_files_are_brought(tmp_path: Path) -> None:
    made = (await plugin(tmp_path, row("u"), way="files").create(request("u", CARDS))).adjust
    assert made.mounts[2].source == "/driver"
    files = [(each.path, each.major, each.minor) for each in made.linux.devices]
    assert files == [("/dev/nvidiactl", 195, 255), ("/dev/nvidia0", 195, 0)]


@pytest.mark.parametrize(
    ("uid", "why"),
    [("absent", "GpuNode has no row for it"), ("misfit", "it does not fit")],
)
async def test_a_pod_that_can_not_be_served_does_not_start(
    tmp_path: Path, uid: str, why: str
) -> None:
    served = plugin(tmp_path, row("misfit"))
    with pytest.raises(Refusal, match=why):
        await served.create(request(uid, CARDS))
    assert served.n_refused == 1


async def test_a_folder_that_can_not_be_made_is_tried_again(tmp_path: Path) -> None:
    served = plugin(tmp_path, row("u"))
    served.agent.apply(None)
    (tmp_path / "pods" / "u").write_text("in the way")
    rows = GpuNodeSpec(rows=[row("u")])
    served.agent.apply(GpuNode(metadata=ObjectMeta(name="n"), spec=rows))
    with pytest.raises(Refusal, match="its folder could not be created"):
        await served.create(request("u", CARDS))
    (tmp_path / "pods" / "u").unlink()
    served.agent.map_cards(DEVICES, frozenset())
    assert (await served.create(request("u", CARDS))).adjust.mounts


@pytest.mark.parametrize("place", [f"{INSIDE}/lib", f"{INSIDE}//x/../lib", f"/.{INSIDE}/run"])
async def test_a_volume_over_the_library_is_refused(tmp_path: Path, place: str) -> None:
    mounts = [pb.Mount(destination=place, source="/evil", type="bind")]
    with pytest.raises(Refusal, match="would hide Ballast's libraries"):
        await plugin(tmp_path, row("u")).create(request("u", CARDS, mounts=mounts))


async def test_a_variable_that_stands_twice_is_refused_for_the_second_would_win(
    tmp_path: Path,
) -> None:
    twice = ["NVIDIA_VISIBLE_DEVICES=void", "A=b", "NVIDIA_VISIBLE_DEVICES=all"]
    with pytest.raises(Refusal, match="is set 2 times"):
        await plugin(tmp_path, row("u")).create(request("u", CARDS, env=twice))


async def test_only_the_container_that_is_named_gets_the_card(tmp_path: Path) -> None:
    served, notes = plugin(tmp_path, row("u")), CARDS | {FRACTION_CONTAINER: "main"}
    assert (await served.create(request("u", notes))).adjust.mounts
    other = (await served.create(request("u", notes, name="logger"))).adjust
    assert not other.mounts
    assert not other.CDI_devices
    assert env(other) == {"NVIDIA_VISIBLE_DEVICES": "void"}


async def test_whole_cards_are_given_without_the_library(tmp_path: Path) -> None:
    made = (await plugin(tmp_path, row("u", milli=1000)).create(request("u", CARDS))).adjust
    assert not made.mounts
    assert [device.name for device in made.CDI_devices] == ["nvidia.com/gpu=GPU-0"]


async def test_whole_cards_of_a_device_plugin_are_left_to_it(tmp_path: Path) -> None:
    served = plugin(tmp_path, row("u", milli=1000), is_by_plugin=True)
    assert await served.create(request("u", CARDS)) == pb.CreateContainerResponse()


def synchronized(uid: str, *mounts: pb.Mount, more: bool = False) -> pb.SynchronizeRequest:
    pod = pb.PodSandbox(id=f"s-{uid}", uid=uid, namespace="team", name=f"pod-{uid}")
    container = pb.Container(id=f"c-{uid}", pod_sandbox_id=pod.id, name="main", mounts=mounts)
    container.state, container.pid = pb.CONTAINER_RUNNING, 4711
    return pb.SynchronizeRequest(pods=[pod], containers=[container], more=more)


async def test_what_ran_before_us_unprotected_is_found_until_it_stops(tmp_path: Path) -> None:
    served = plugin(tmp_path, row("a"), row("b", index=1))
    safe = pb.Mount(
        destination="/etc/ld.so.preload", source=str(tmp_path / "pods" / "a" / "ld.so.preload")
    )
    assert (await served.synchronize(synchronized("a", safe, more=True))).more
    assert not served.pods
    await served.synchronize(synchronized("b"))
    assert served.unprotected() == [RunningContainer("c-b", "b", "main", False, pid=4711)]
    assert served.pods["b"] == ("team", "pod-b")
    await served.stopped(pb.ContainerRequest(container=pb.Container(id="c-b")))
    assert not served.unprotected()


async def test_a_preload_of_the_tenants_own_is_no_protection(tmp_path: Path) -> None:
    served = plugin(tmp_path, row("b"))
    fake = pb.Mount(destination="/etc/ld.so.preload", source="/var/lib/kubelet/pods/b/x")
    await served.synchronize(synchronized("b", fake))
    assert len(served.unprotected()) == 1


async def test_a_pod_that_is_gone_is_forgotten_with_its_containers(tmp_path: Path) -> None:
    served = plugin(tmp_path, row("a"))
    await served.create(request("a", CARDS))
    await served.removed(pb.ContainerRequest(pod=pb.PodSandbox(uid="a")))
    assert (served.pods, served.containers) == ({}, {})


async def test_a_runtime_that_is_not_there_is_asked_for_again(tmp_path: Path) -> None:
    served = plugin(tmp_path)
    assert not served.is_connected
    await served.configure(pb.ConfigureRequest(runtime_name="containerd", runtime_version="2"))
    assert (served.is_connected, served.runtime) == (True, "containerd 2")


async def test_a_folder_stays_until_the_runtime_says_that_its_containers_are_gone(
    tmp_path: Path,
) -> None:
    made = plugin(tmp_path, row("u"))
    agent, home = made.agent, made.agent.home("u")
    agent.is_running = made.is_running
    agent.apply(None)
    assert home.exists(), "the runtime has not said yet what runs"
    pod = pb.PodSandbox(id="s-u", uid="u", namespace="team", name="p")
    running = pb.CONTAINER_RUNNING
    container = pb.Container(id="c-1", pod_sandbox_id="s-u", name="main", state=running)
    await made.synchronize(pb.SynchronizeRequest(pods=[pod], containers=[container]))
    assert home.exists()
    await made.removed(pb.ContainerRequest(pod=pod, container=container))
    assert not home.exists()


async def test_a_list_that_a_restart_of_the_runtime_cut_off_is_forgotten(tmp_path: Path) -> None:
    served = plugin(tmp_path, row("a"), row("b"))
    await served.synchronize(synchronized("a", more=True))
    await served.configure(pb.ConfigureRequest(runtime_name="containerd"))
    await served.synchronize(synchronized("b"))
    assert not served.is_running("a")
    assert served.is_running("b")
