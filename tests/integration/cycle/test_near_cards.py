"""The labels of a real Node determine which of its cards a pod gets."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """A node of four cards, whose pairs are 0, 2 and 1, 3."""
    async with Scene.open(cluster, n_nodes=1, cards=4) as opened:
        yield opened
        await audited.finish()


def label(scene: Scene, value: str) -> None:
    (node,) = scene.admin.get("/api/v1/nodes")["items"]
    word = f"ballast.dev/cards-by-nvlink={value}"
    scene.cluster.kubectl("label", "node", node["metadata"]["name"], word, "--overwrite")


def cards(scene: Scene) -> dict[str, list[int]]:
    """By pod, the indices of its cards."""
    (node,) = scene.get("gpunodes")["items"]
    rows = node["spec"].get("rows", [])
    return {row["name"]: [card.get("index", 0) for card in row["cards"]] for row in rows}


async def test_a_pod_of_two_gets_a_pair_and_one_of_one_breaks_none(scene: Scene) -> None:
    label(scene, "0_2.1_3")
    await scene.until_decided(3)
    scene.submit_pod("team-a", "two", 2000)
    await scene.until_bound("team-a", 1)
    assert cards(scene) == {"two": [0, 2]}
    scene.submit_pod("team-b", "one", 1000)
    await scene.until_bound("team-b", 1)
    scene.submit_pod("team-b", "another", 1000)
    await scene.until_bound("team-b", 2)
    assert cards(scene) == {"two": [0, 2], "one": [1], "another": [3]}


async def test_a_label_that_is_not_understood_is_told(scene: Scene) -> None:
    label(scene, "pairs")

    def told() -> bool:
        path = "/apis/events.k8s.io/v1/events"
        events = scene.admin.get(path)["items"]
        return any(
            event["reason"] == "InvalidLabels" and "cards-by-nvlink" in event["note"]
            for event in events
        )

    await scene.until(told, "the event")
    scene.submit_pod("team-a", "two", 2000)
    await scene.until_bound("team-a", 1)
    assert cards(scene) == {"two": [0, 1]}
