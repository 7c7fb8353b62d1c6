"""The conditions of a GpuNode that the agent writes."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest
from structlog.testing import capture_logs

from extender.api.kinds import Device, ForeignHold, GpuNodeStatus
from extender.api.objects import Condition
from extender.kube.client import Client
from extender.kube.errors import Unavailable
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.program import NEWEST_CUDA, unknown_driver
from gpu_shim.agent.report import PATIENCE_S, NodeCondition, NodeReporter, own_part


def test_what_is_so_stays_so_since_it_became_so() -> None:
    before = [Condition(type="T", status="True", last_transition_time="2026-01-01T00:00:00Z")]
    made = NodeCondition("T", []).condition(before)
    assert (made.status, made.reason, made.message) == ("True", "T", "")
    assert made.last_transition_time == "2026-01-01T00:00:00Z"
    assert (
        NodeCondition("T", ["x"]).condition(before).last_transition_time != "2026-01-01T00:00:00Z"
    )


def test_what_is_not_so_says_why_and_how_much_more_there_is() -> None:
    made = NodeCondition("CardsHealthy", [f"card {at}" for at in range(10)], "CardUnhealthy")
    condition = made.condition([])
    assert (condition.status, condition.reason) == ("False", "CardUnhealthy")
    assert condition.message.endswith("card 7; and 2 more")
    assert NodeCondition("T", ["x"]).condition([]).reason == "NotT"


def test_a_driver_that_is_newer_than_the_libraries_is_told_of() -> None:
    assert unknown_driver(NEWEST_CUDA) == []
    assert unknown_driver(12080) == []
    (why,) = unknown_driver(14020)
    assert why.startswith("the driver has CUDA 14.2, Ballast knows 13.5: ")


def test_what_the_controller_writes_of_the_status_is_not_compared() -> None:
    hold = ForeignHold(uid="u", namespace="elsewhere", name="s", gpus=1)
    shown = GpuNodeStatus(devices=[Device(index=0, memory_mib=1)], foreign=[hold])
    assert own_part(shown) == {"devices": [{"index": 0, "memoryMiB": 1}]}


@pytest.mark.looptime
async def test_a_report_that_fails_is_tried_again_seldom_and_logged_once() -> None:
    """Every node of the cluster asks the same API server."""
    agent: Any = create_autospec(Agent, instance=True, node="n1", ledger=None, is_synced=True)
    agent.devices = [Device(index=0, memory_mib=1)]
    agent.changes.side_effect = asyncio.Event().wait
    api: Any = create_autospec(Client, instance=True)
    api.merge_patch.side_effect = Unavailable("away")
    with capture_logs() as logs:
        reporting = asyncio.create_task(NodeReporter(api, agent, lambda: ()).run())
        await asyncio.sleep(12 * PATIENCE_S)
    reporting.cancel()
    assert api.merge_patch.call_count <= 13
    assert len(logs) == 1
