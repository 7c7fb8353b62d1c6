"""Lent memory of a card, by limits and use of its pods."""

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row, RowState
from extender.api.objects import ObjectMeta
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.lending import Lender, MemoryUse, lending_level, lent_caps, limit_of
from gpu_shim.arbiter.container import MIB
from gpu_shim.home import LIBRARIES

NO_LIMIT = MemoryUse(20, 20, 20)


@pytest.mark.parametrize(
    ("pods", "level"),
    [
        ([], 40),
        ([NO_LIMIT], 40),
        ([MemoryUse(20, 80)], 40),
        ([MemoryUse(20, 80), MemoryUse(20, 80)], 20),
        ([MemoryUse(20, 80), MemoryUse(20, 25)], 35),
        ([MemoryUse(20, 80, held_mib=60), MemoryUse(20, 80, held_mib=20)], 0),
        ([MemoryUse(20, 80, held_mib=50), MemoryUse(20, 80, held_mib=20)], 10),
        ([MemoryUse(20, 80, held_mib=70)], 0),
    ],
)
def test_pods_have_equal_parts_above_their_requests_and_keep_what_they_hold(
    pods: list[MemoryUse], level: int
) -> None:
    assert lending_level(40, pods) == level


def test_no_more_is_lent_than_no_request_covers_whatever_pods_hold() -> None:
    rng = random.Random(7)
    for _ in range(500):
        pods = []
        for _ in range(rng.randrange(1, 6)):
            request = rng.randrange(1, 50)
            limit = request + rng.choice((0, rng.randrange(1, 90)))
            pods.append(MemoryUse(request, limit, rng.randrange(limit + 1)))
        unbooked = rng.randrange(100)
        caps = lent_caps(unbooked, {str(at): each for at, each in enumerate(pods)})
        most = held = 0
        for each, cap in zip(pods, caps.values(), strict=True):
            assert each.request_mib <= cap <= each.limit_mib
            most += max(cap, each.held_mib) - each.request_mib
            held += each.lent_mib
        # Where pods hold more than may be lent, none may allocate above its request.
        assert most <= max(unbooked, held)


class Arbiter:
    """Stands where the arbiter stands: remembers caps; `held` is what pods hold, in MiB."""

    def __init__(self) -> None:
        self.containers: dict[str, Any] = {}
        self.held: dict[str, int] = {}

    def admit(self, claim: Any, path: Path, cards: Any) -> str:
        def set_cards(new: Any) -> None:
            made.cards = new

        table = SimpleNamespace(held_bytes=lambda _at: self.held.get(claim.name, 0) * MIB)
        made = SimpleNamespace(name=claim.name, cards=cards, table=table, set_cards=set_cards)
        self.containers[claim.name] = made
        return ""

    def remove(self, name: str) -> None:
        del self.containers[name]


class Node:
    """A node with one card of 80 MiB, whose pool lends memory."""

    def __init__(self, root: Path) -> None:
        for name in LIBRARIES:
            (root / name).touch()
        arbiter: Any = Arbiter()
        self.arbiter = arbiter
        devices = [Device(index=0, memory_mib=80, uuid="GPU-0")]
        self.agent = Agent("n", devices, arbiter, root, root / "pods", is_lending=True)
        self.lender = Lender(self.agent, is_listed=True)

    def rows(self, requests: Mapping[str, int], state: RowState = "bound") -> None:
        """Say what pods have of the card, in MiB; of the last one, in which state."""
        made = [
            Row(uid=uid, namespace="t", name=uid, cards=[CardShare(0, 100, mib)], state="bound")
            for uid, mib in requests.items()
        ]
        made[-1] = structs.replace(made[-1], state=state)
        self.agent.apply(GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=made)))
        self.lender.settle()

    def caps(self) -> dict[str, int]:
        return {uid: each.cards[0].cap_mib for uid, each in self.arbiter.containers.items()}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_only_pods_with_a_limit_are_lent_memory(node: Node) -> None:
    node.lender.limits = {"a": 60, "b": 30}
    node.rows({"a": 20, "b": 20, "c": 10})
    assert node.caps() == {"a": 40, "b": 30, "c": 10}


@pytest.mark.parametrize(("held", "then"), [(30, 40), (60, 20)])
def test_no_cap_rises_before_the_others_have_fallen(node: Node, held: int, then: int) -> None:
    node.lender.limits = {"a": 80, "b": 80}
    node.rows({"a": 20})
    node.rows({"a": 20, "b": 20})
    assert node.caps() == {"a": 40, "b": 20}
    node.arbiter.held["a"] = held
    node.lender.settle()
    assert node.caps() == {"a": 40, "b": then}


@pytest.mark.parametrize("state", ["nominated", "reserved", "bound"])
def test_a_place_that_is_promised_is_no_longer_lent(node: Node, state: RowState) -> None:
    node.lender.limits = {"a": 80}
    node.rows({"a": 20})
    assert node.caps() == {"a": 80}
    node.rows({"a": 20, "b": 30}, state)
    assert node.caps()["a"] == 50


def test_nothing_is_lent_where_the_pool_does_not_say_so(node: Node) -> None:
    node.lender.limits = {"a": 80}
    node.agent.is_lending = False
    node.rows({"a": 20})
    assert node.caps() == {"a": 20}


def test_a_pod_that_comes_to_the_card_starts_when_its_request_is_free(node: Node) -> None:
    node.lender.limits = {"a": 80}
    node.rows({"a": 20})
    assert node.lender.shortage("a") == ""
    node.arbiter.held["a"] = 70
    node.rows({"a": 20, "b": 30})
    assert node.caps() == {"a": 50, "b": 30}
    assert node.lender.shortage("b").startswith("waits for 20 of its 30 MiB of GPU-0: ")
    node.arbiter.held["a"] = 51
    assert node.lender.shortage("b").startswith("waits for 1 of its 30 MiB")
    node.arbiter.held["a"] = 50
    assert node.lender.shortage("b") == ""


def test_a_pod_that_has_started_is_not_held_back_by_one_that_waits(node: Node) -> None:
    node.lender.limits = {"a": 80}
    node.rows({"a": 20, "b": 30})
    assert (node.lender.shortage("a"), node.lender.shortage("b")) == ("", "")
    node.arbiter.held["a"] = 50
    node.rows({"a": 20, "b": 30, "c": 30})
    assert node.lender.shortage("c").startswith("waits for 30 of its 30 MiB")
    assert node.lender.shortage("b") == ""


def test_a_pod_does_not_wait_for_what_no_limit_explains(node: Node) -> None:
    """A pod without a limit may pass its cap by modules that are loaded late."""
    node.rows({"a": 50})
    assert node.lender.shortage("a") == ""
    node.arbiter.held["a"] = 60
    node.rows({"a": 50, "b": 30})
    assert node.lender.shortage("b") == ""


def test_what_a_pod_was_lent_is_within_its_bounds_until_it_frees_it(node: Node) -> None:
    node.lender.limits = {"a": 60}
    node.rows({"a": 20, "b": 50})
    for held, bound in ((10, 30), (55, 55), (75, 60)):
        node.arbiter.held["a"] = held
        node.lender.settle()
        assert [each.cards[0].cap_mib for each in node.lender.bounds()] == [bound, 50]


def test_before_the_runtime_has_told_nothing_is_lent_and_nothing_held_is_out_of_bounds(
    node: Node,
) -> None:
    node.lender.is_listed = False
    node.arbiter.held["a"] = 70
    node.rows({"a": 20})
    assert node.caps() == {"a": 20}
    assert [each.cards[0].cap_mib for each in node.lender.bounds()] == [70]


@pytest.mark.parametrize(
    ("notes", "limit"),
    [
        ({"gpu-memory": "8192", "gpu-memory-limit": "16384"}, 16384),
        ({"ballast.dev/gpu-memory": "8192", "ballast.dev/gpu-memory-limit": "16384"}, 16384),
        ({"gpu-memory": "8192"}, 0),
        ({"gpu-fraction": "0.5", "gpu-memory-limit": "16384"}, 0),
        ({"gpu-memory": "8192", "gpu-memory-limit": "many"}, 0),
        ({"gpu-memory": "8192", "gpu-memory-limit": "4096"}, 0),
    ],
)
def test_a_limit_is_read_as_the_webhook_reads_it(notes: Mapping[str, str], limit: int) -> None:
    assert limit_of(notes) == limit
