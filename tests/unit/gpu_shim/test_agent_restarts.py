"""Containers that started without the library are restarted once, if kubelet restarts them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.kinds import RestartPolicy
from extender.kube.recorder import ObjectRef
from gpu_shim.agent.enforce import Enforcer, EvictionSettings, Sources
from gpu_shim.agent.nri.plugin import NodePlugin, RunningContainer
from gpu_shim.agent.proto import nri_pb2 as pb
from gpu_shim.agent.restarts import NotEndedError, Restarts, end_first_process
from tests.unit.gpu_shim.test_agent_enforce import Cluster
from tests.unit.gpu_shim.test_nri_plugin import CARDS, plugin, request, row

UID = "00112233-4455-6677-8899-aabbccddeeff"
ID = "0123456789abcdef"


@dataclass(slots=True)
class Stage:
    """A node whose agent comes back and finds pod u running, and what it does about it."""

    served: NodePlugin
    enforcer: Enforcer
    cluster: Cluster
    ended: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    cannot: str = ""

    def end(self, container: RunningContainer) -> None:
        """Stands where a process is killed."""
        self.ended.append(container.id)
        if self.cannot:
            raise NotEndedError(self.cannot)

    def record(self, about: ObjectRef, reason: str, _message: str, _type: str) -> None:
        """Stands where Events are written."""
        self.events.append((about.name, reason))

    async def runs(self, **fields: Any) -> None:
        """The runtime says that a container of the pod runs, which has no mount of ours."""
        pod = pb.PodSandbox(id="s-u", uid="u", namespace="team", name="pod-u")
        container = pb.Container(id="c-old", pod_sandbox_id="s-u", name="main", pid=4711, **fields)
        container.state = pb.CONTAINER_RUNNING
        await self.served.synchronize(pb.SynchronizeRequest(pods=[pod], containers=[container]))

    async def stops(self) -> None:
        """The runtime says that the container has stopped."""
        await self.served.stopped(pb.ContainerRequest(container=pb.Container(id="c-old")))

    async def look(self, n_times: int = 1) -> list[str]:
        """The messages of what the agent finds; the last of so many looks."""
        for _ in range(n_times):
            assert self.enforcer.restarts is not None
            await self.enforcer.act(list(self.enforcer.restarts.findings()))
            self.enforcer.restart()
        return [each.message for each in self.enforcer.findings]


def stage(
    tmp_path: Path,
    policy: RestartPolicy = "Always",
    *,
    is_on: bool = True,
    spared: frozenset[str] = frozenset(),
) -> Stage:
    """With eviction on, so that it shows where a pod is spared it."""
    served, cluster = plugin(tmp_path, replace(row("u"), restart_policy=policy)), Cluster()
    eviction = EvictionSettings(is_on=True, after_s=2.0, spared=spared)
    seconds = iter(range(1000))
    api: Any = cluster
    restarts = Restarts(served, is_on)
    enforcer = Enforcer(
        api,
        served.agent,
        Sources(plugin=served),
        eviction,
        restarts=restarts,
        clock=lambda: next(seconds),
    )
    cluster.uids["pod-u"] = "u"
    made = Stage(served, enforcer, cluster)
    restarts.end, enforcer.events = made.end, made  # type: ignore[assignment]
    return made


BARE = "team/pod-u: container main was started without the library"


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
async def test_a_container_is_ended_once_and_reported_before_and_after(
    tmp_path: Path, policy: RestartPolicy
) -> None:
    made = stage(tmp_path, policy)
    await made.runs()
    assert await made.look(5) == [BARE]
    assert made.ended == ["c-old"]
    assert made.events == [("pod-u", "GpuUnprotected"), ("pod-u", "GpuContainerRestarted")]
    assert made.cluster.deleted == []


async def test_the_pod_is_beyond_its_bounds_until_the_next_container_has_the_library(
    tmp_path: Path,
) -> None:
    made = stage(tmp_path)
    await made.runs()
    await made.look()
    await made.stops()
    assert await made.look(5) == ["team/pod-u: container main was ended, and has not started again"]
    await made.served.create(request("u", CARDS))
    assert await made.look() == []
    assert made.cluster.deleted == []
    assert made.events == [("pod-u", "GpuUnprotected"), ("pod-u", "GpuContainerRestarted")]


async def test_a_container_that_comes_back_and_ends_between_two_looks_is_no_longer_waited_for(
    tmp_path: Path,
) -> None:
    made = stage(tmp_path, "OnFailure")
    await made.runs()
    await made.look()
    await made.stops()
    await made.served.create(request("u", CARDS))
    await made.served.stopped(pb.ContainerRequest(container=pb.Container(id="c-1")))
    assert await made.look() == []


async def test_another_container_with_the_library_does_not_count_as_the_one_that_was_ended(
    tmp_path: Path,
) -> None:
    made = stage(tmp_path)
    await made.runs()
    await made.look()
    await made.stops()
    await made.served.create(request("u", CARDS, name="other"))
    assert await made.look() == ["team/pod-u: container main was ended, and has not started again"]


async def test_a_pod_that_goes_meanwhile_is_no_longer_waited_for(tmp_path: Path) -> None:
    made = stage(tmp_path)
    await made.runs()
    await made.look()
    await made.stops()
    made.served.agent.apply(None)
    assert await made.look() == []


async def test_a_container_that_kubelet_does_not_restart_is_reported_only(tmp_path: Path) -> None:
    made = stage(tmp_path, "Never")
    await made.runs()
    assert await made.look(2) == [BARE]
    assert made.ended == []
    assert await made.look(2) == [BARE]
    assert made.cluster.deleted == ["pod-u"], "what --evict does is as it was"


async def test_as_installed_no_container_is_ended(tmp_path: Path) -> None:
    made = stage(tmp_path, is_on=False)
    await made.runs()
    await made.look(5)
    assert made.ended == []
    assert made.cluster.deleted == ["pod-u"]


async def test_containers_of_spared_namespaces_are_not_ended(tmp_path: Path) -> None:
    made = stage(tmp_path, spared=frozenset({"team"}))
    await made.runs()
    assert await made.look(5) == []
    assert (made.ended, made.events) == ([], [])


async def test_a_container_that_cannot_be_ended_is_tried_once_and_then_as_any_other(
    tmp_path: Path,
) -> None:
    made = stage(tmp_path)
    made.cannot = "pidfd_send_signal: Operation not permitted"
    await made.runs()
    assert await made.look(5) == [BARE]
    assert made.ended == ["c-old"]
    assert made.events == [("pod-u", "GpuUnprotected")]
    assert made.cluster.deleted == ["pod-u"]


async def test_a_container_with_the_library_is_left_alone(tmp_path: Path) -> None:
    made = stage(tmp_path)
    source = str(tmp_path / "pods" / "u" / "ld.so.preload")
    await made.runs(mounts=[pb.Mount(destination="/etc/ld.so.preload", source=source)])
    assert await made.look(3) == []
    assert made.ended == []


@dataclass(slots=True)
class Process:
    """A process that sleeps, and a /proc of our own making that says where it runs."""

    program: "subprocess.Popen[bytes]"
    proc: Path

    def end(self, group: str, pid: int | None = None) -> None:
        """End the first process of container ID of pod UID, which the kernel says is in `group`."""
        folder = self.proc / str(self.program.pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::{group}\n")
        number = self.program.pid if pid is None else pid
        end_first_process(RunningContainer(ID, UID, "main", False, number), self.proc)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    program = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
    yield Process(program, tmp_path)
    program.kill()
    program.wait()


SLICE = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    "group",
    [
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"{SLICE}/cri-containerd-{ID}.scope",
        f"{SLICE}/crio-{ID}.scope/x",
    ],
)
def test_the_first_process_of_the_container_is_killed(process: Process, group: str) -> None:
    process.end(group)
    assert process.program.wait(timeout=60) == -signal.SIGKILL


@pytest.mark.parametrize(
    "group",
    [
        "/system.slice/ssh.service",
        f"/kubepods/pod{UID.replace('0011', 'ffff', 1)}/{ID}",
        f"/kubepods/pod{UID}/fedcba9876543210",
    ],
    ids=["of the host", "of another pod", "of the pod's other container"],
)
def test_a_process_that_has_the_number_by_now_is_not_killed(process: Process, group: str) -> None:
    with pytest.raises(NotEndedError, match="is not in it"):
        process.end(group)
    assert process.program.poll() is None


def test_a_container_whose_process_is_unknown_or_gone_is_not_ended(process: Process) -> None:
    with pytest.raises(NotEndedError, match="does not tell"):
        process.end(SLICE, pid=0)
    process.program.kill()
    process.program.wait()
    with pytest.raises(NotEndedError, match="No such process"):
        end_first_process(RunningContainer(ID, UID, "main", False, process.program.pid))
