"""Cards, their health, and kubelet's allocations, combined."""

from pathlib import Path
from typing import Any

import pytest

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row
from extender.api.objects import ObjectMeta
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.cards import Cards
from gpu_shim.agent.health import Health
from gpu_shim.agent.indices import Hold
from gpu_shim.home import LIBRARIES
from tests.unit.gpu_shim.test_nri_plugin import Doors


def device(index: int, uuid: str) -> Device:
    return Device(index=index, memory_mib=16384, uuid=uuid)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    for name in LIBRARIES:
        (tmp_path / name).touch()
    doors: Any = Doors()
    return Agent("n", [], doors, tmp_path, tmp_path / "pods")


def cards(agent: Agent, *found: Device, **options: Any) -> Cards:
    return Cards(agent, found, Health(agent.state / "health.json", "boot"), **options)


def rows(*names: str) -> GpuNode:
    made = [
        Row(uid=each, namespace="t", name=each, cards=[CardShare(at, 500, 64)], state="bound")
        for at, each in enumerate(names)
    ]
    return GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=made))


def test_pods_keep_their_cards_when_an_agent_starts_after_a_card_was_lost(agent: Agent) -> None:
    before = rows("first", "second")
    before.status.devices = [device(0, "a"), device(1, "b")]
    known = cards(agent, device(0, "b"), device(1, "c"))
    known.begin(before)
    agent.apply(before)
    known.publish()
    assert {uid: each.cards[0].uuid for uid, each in agent.tenants.items()} == {
        "first": "a",
        "second": "b",
    }
    assert [(each.index, each.uuid, each.health) for each in agent.devices] == [
        (0, "a", "Unhealthy"),
        (1, "b", "Healthy"),
        (2, "c", "Healthy"),
    ]


def test_a_card_that_is_ill_is_shown_so_and_its_pods_stay(agent: Agent) -> None:
    known = cards(agent, device(0, "a"))
    known.begin(None)
    agent.apply(rows("pod"))
    known.health.saw_xid("a", 79)
    known.publish()
    assert [each.health for each in agent.devices] == ["Unhealthy"]
    assert list(agent.tenants) == ["pod"]


def test_a_lost_card_that_no_pod_holds_is_still_shown(agent: Agent) -> None:
    known = cards(agent, device(0, "a"), device(1, "b"))
    known.begin(None)
    agent.apply(rows())
    known.health.saw_silence("a")
    known.found = [device(0, "b")]
    known.publish()
    assert [(each.uuid, each.health) for each in agent.devices] == [
        ("a", "Unhealthy"),
        ("b", "Healthy"),
    ]


def test_a_device_plugins_card_is_nobodys_before_kubelet_was_asked(agent: Agent) -> None:
    known = cards(agent, device(0, "a"), device(1, "b"), is_by_plugin=True)
    known.begin(None)
    agent.apply(rows("pod"))
    assert (list(agent.tenants), list(agent.rejected)) == ([], ["pod"])
    known.holds = [Hold((0,), ("b",))]
    known.publish()
    assert [card.uuid for card in agent.tenants["pod"].cards] == ["b"]
    known.holds = [Hold((0,), ("a",))]
    known.publish()
    assert [card.uuid for card in agent.tenants["pod"].cards] == ["b"]
    assert known.conflicts == ["card 0 is b, and kubelet gave a for it"]


def test_a_pod_that_does_not_fit_leaves_no_folder_behind(agent: Agent) -> None:
    cards(agent, device(0, "a"), device(1, "b")).begin(None)
    agent.apply(rows("fits", "misfit"))
    assert agent.rejected == {"misfit": "it does not fit"}
    assert (agent.home("fits").exists(), agent.home("misfit").exists()) == (True, False)
