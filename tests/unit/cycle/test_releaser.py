"""Releases run beside the cycle, and no project delays those of another."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest
import structlog
from structlog.testing import LogCapture

from extender.api.events import Synced, Upserted
from extender.api.objects import Node, Pod
from extender.cycle.pods.narrow import Narrowing
from extender.cycle.pods.releaser import AT_ONCE, Releaser
from extender.cycle.pods.writer import PodWriter, Release
from extender.kube.client import Client
from extender.kube.errors import Conflict, NotLeading
from extender.state.cluster import ClusterState
from extender.state.model import PodView
from tests.support.builders import gpu_node, node, pod, row, whole

EPOCH = 7


class Scene:
    """Pods with reserved rows on one node, and a writer that notes what it is given."""

    def __init__(self, names: list[str]) -> None:
        self.pods = [pod(name).needs(1000).build() for name in names]
        self.node = gpu_node("n1", len(names))
        self.state = ClusterState()
        for kind in (Pod, Node):
            self.state.apply(Synced(kind))
        self.state.apply(Upserted(node("n1").gpus(len(names)).build()))
        for made in self.pods:
            self.state.apply(Upserted(made))
        self.set_rows(names)
        self.sent: list[str] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        writer: Any = create_autospec(PodWriter, instance=True)
        writer.release.side_effect = self._send
        self.releaser = Releaser(self.state, writer)

    def set_rows(self, names: list[str]) -> None:
        held = [
            row(made, whole(ix), state="reserved", epoch=EPOCH)
            for ix, made in enumerate(self.pods)
            if made.metadata.name in names
        ]
        self.state.apply(Upserted(gpu_node("n1", len(self.pods)).holds(*held).build()))

    async def _send(self, release: Release, _narrowing: Narrowing) -> str:
        self.sent.append(release.pod.name)
        await self.may_go.wait()
        return "done"

    def start(self, project: str, *names: str) -> None:
        views = [self.state.pod(f"uid-{name}") for name in names]
        self.releaser.start(project, [Release(view, "n1", EPOCH) for view in views if view])

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_projects_take_turns_a_workload_each() -> None:
    scene = Scene(["a1", "a2", "a3", "a4", "b1"])
    scene.start("a", "a1", "a2")
    scene.start("a", "a3", "a4")
    scene.start("b", "b1")
    await scene.settle()
    assert scene.sent == ["a1", "a2", "b1", "a3", "a4"]


async def test_a_pod_under_way_is_not_queued_again() -> None:
    scene = Scene(["a1"])
    scene.may_go.clear()
    scene.start("a", "a1")
    await scene.settle()
    assert scene.releaser.in_release == {"uid-a1"}
    scene.start("a", "a1")
    scene.may_go.set()
    await scene.settle()
    assert scene.sent == ["a1"]
    assert not scene.releaser.in_release
    scene.start("a", "a1")
    await scene.settle()
    assert scene.sent == ["a1", "a1"]


async def test_a_pod_that_lost_its_row_meanwhile_is_not_released() -> None:
    scene = Scene(["a1", "a2"])
    scene.start("a", "a1", "a2")
    scene.set_rows(["a2"])
    await scene.settle()
    assert scene.sent == ["a2"]


async def test_so_many_are_under_way_at_once() -> None:
    names = [f"a{number}" for number in range(AT_ONCE + 6)]
    scene = Scene(names)
    scene.may_go.clear()
    scene.start("a", *names)
    await scene.settle()
    assert len(scene.sent) == AT_ONCE
    scene.may_go.set()
    await scene.settle()
    assert scene.sent == names


async def test_nothing_is_sent_once_this_process_leads_no_more() -> None:
    names = [f"a{number}" for number in range(2 * AT_ONCE)]
    scene = Scene(names)
    scene.may_go.clear()
    scene.start("a", *names)
    await scene.settle()
    await scene.releaser.close()
    scene.may_go.set()
    await scene.settle()
    assert len(scene.sent) == AT_ONCE


@pytest.mark.parametrize("error", [NotLeading("the Lease was not renewed"), RuntimeError("a bug")])
async def test_a_failure_ends_no_other_release(error: Exception) -> None:
    scene = Scene(["a1", "a2"])
    scene.releaser._writer.release.side_effect = [error, "done"]  # type: ignore[attr-defined]
    scene.start("a", "a1")
    await scene.settle()
    scene.start("a", "a2")
    await scene.settle()
    assert scene.releaser._writer.release.call_count == 2  # type: ignore[attr-defined]


async def test_a_pod_that_is_queued_as_the_last_release_ends_is_sent() -> None:
    names = [f"a{number}" for number in range(AT_ONCE)]
    scene = Scene([*names, "next"])
    scene.may_go.clear()
    scene.start("a", *names)
    await scene.settle()
    scene.may_go.set()
    while scene.releaser.in_release:
        await asyncio.sleep(0)
    scene.start("a", "next")
    await scene.settle()
    assert scene.sent[-1] == "next"


@pytest.mark.parametrize("is_done", [True, False])
async def test_each_release_is_one_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    # A logger of its own: a program that another test ran may have set the level of the usual one.
    lines = LogCapture()
    log = structlog.wrap_logger(None, processors=[lines], wrapper_class=structlog.BoundLogger)
    monkeypatch.setattr("extender.cycle.pods.writer.log", log)
    scene = Scene(["a1"])
    client: Any = create_autospec(Client, instance=True)
    client.strategic_patch.side_effect = [scene.pods[0] if is_done else Conflict("it changed")]
    view = scene.state.pod("uid-a1")
    assert isinstance(view, PodView)
    writer = PodWriter(client, scene.state)
    await writer.release(Release(view, "n1", EPOCH), Narrowing(scene.state))
    line = {"event": "released pod", "pod": "team-a/a1", "node": "n1", "epoch": EPOCH}
    assert lines.entries == ([{"log_level": "info"} | line] if is_done else [])
