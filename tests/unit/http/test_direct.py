"""Rows of direct pods: one each, within the project's share, on free cards."""

from typing import Any
from unittest.mock import create_autospec

from msgspec import convert
from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.kinds import CardShare, GpuNode, GpuNodeSpec, Row
from extender.api.reasons import Reason
from extender.http.book import Book
from extender.http.claim import PodClaim, read_claim
from extender.http.direct import DirectPlacer
from extender.http.live import LiveReader
from extender.kube.client import Client
from extender.ledger.writer import Ledger
from tests.support.builders import CARD_MIB, PodBuilder, gpu_node, part, pod, project, row


class Counter:
    """A placer on a book, and an API server that stores every GpuNode that is patched."""

    def __init__(self, *objects: Any) -> None:
        self.book = Book()
        for each in objects:
            self.book.apply(Upserted(each))
        self.stored = {each.metadata.name: each for each in objects if isinstance(each, GpuNode)}
        client: Any = create_autospec(Client, instance=True)
        client.get.side_effect = self._get
        client.merge_patch.side_effect = self._patch
        ledger = Ledger(client, self.book.node, base_s=0)
        self.placer = DirectPlacer(self.book, LiveReader(client, self.book), ledger)

    async def _get(self, _resource: object, name: str) -> GpuNode:
        return self.stored[name]

    async def _patch(self, _resource: object, name: str, patch: dict[str, Any]) -> GpuNode:
        before = self.stored[name]
        version = str(int(before.metadata.resource_version) + 1)
        meta = replace(before.metadata, resource_version=version)
        spec = convert(patch["spec"], GpuNodeSpec)
        self.stored[name] = after = replace(before, metadata=meta, spec=spec)
        return after

    def rows(self, name: str) -> list[Row]:
        return list(self.stored[name].spec.rows)


def claim(builder: PodBuilder) -> PodClaim:
    return read_claim(builder.build())


async def test_a_direct_pod_gets_a_row_on_a_card_with_room() -> None:
    counter = Counter(project("team-a").quota(1).build(), gpu_node("n1", 1).build())
    cards = await counter.placer.reserve(claim(pod("a").needs(500).direct()), "n1")
    assert cards == (CardShare(0, 500, CARD_MIB // 2),)
    assert [each.name for each in counter.rows("n1")] == ["a"]


async def test_the_row_of_a_direct_pod_says_what_kubelet_does_when_a_container_has_ended() -> None:
    counter = Counter(project("team-a").quota(1).build(), gpu_node("n1", 1).build())
    await counter.placer.reserve(claim(pod("a").needs(500).restarts("Always").direct()), "n1")
    assert [each.restart_policy for each in counter.rows("n1")] == ["Always"]


async def test_a_direct_pod_that_has_a_row_gets_no_second_one_elsewhere() -> None:
    asking = pod("a").needs(500).direct()
    held = row(asking.build(), part(0, 500))
    counter = Counter(
        project("team-a").quota(9).build(),
        gpu_node("n1", 1).holds(held).build(),
        gpu_node("n2", 1).build(),
    )
    assert await counter.placer.reserve(claim(asking), "n2") is Reason.PLANNED_ELSEWHERE
    assert counter.rows("n2") == []


async def test_a_direct_pod_beyond_its_projects_share_gets_no_row() -> None:
    counter = Counter(project("team-a").quota("0.4").build(), gpu_node("n1", 1).build())
    asking = claim(pod("a").needs(500).direct())
    assert await counter.placer.reserve(asking, "n1") is Reason.OVER_FAIR_SHARE
    assert counter.rows("n1") == []
