"""Statuses: conditions of queues are written at once, figures in turns, refused ones less often."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest
from msgspec import convert
from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.kinds import MonthUse, PoolUse, QueueStatus, QueueSummary
from extender.api.objects import Condition
from extender.cycle.past_use import PastUseKeeper
from extender.cycle.reports.figure_turns import MOST_FIGURES, NewStatus, due
from extender.cycle.reports.report import Reporter
from extender.kube.backoff import CAP_S
from extender.kube.client import Client
from extender.kube.errors import RequestRefused
from extender.kube.recorder import EventRecorder
from extender.policy.plan import Plan, QueueShare
from extender.state.cluster import ClusterState
from tests.support.builders import pod, pod_group, project

BEFORE = QueueStatus(
    gpu=QueueSummary(quota="4", allocated="1"),
    node_pools=[PoolUse(name="default", quota="4", fair_share="4", allocated="1")],
    conditions=[Condition(type="Valid", status="True")],
)
FIGURES = replace(BEFORE, gpu=replace(BEFORE.gpu, allocated="2", pending_pods=3))


def pool(**changed: Any) -> QueueStatus:
    return replace(FIGURES, node_pools=[replace(BEFORE.node_pools[0], **changed)])


def test_figures_of_many_queues_take_turns_the_longest_written_ago_first() -> None:
    new = [NewStatus(at, FIGURES, BEFORE, float(at)) for at in reversed(range(1_000))]
    assert [each.target for each in due(new, 2.0)] == list(range(20))
    assert len(due(new, float("inf"))) == MOST_FIGURES


def test_what_programs_act_on_waits_for_no_turn() -> None:
    month = MonthUse(month="2026-11", gpu_hours="1.0", milli_gpu_seconds=1)
    stated = {
        "new": NewStatus("new", FIGURES, None),
        "condition": NewStatus("condition", replace(FIGURES, conditions=[]), BEFORE),
        "spec": NewStatus("spec", replace(FIGURES, observed_generation=2), BEFORE),
        "quota": NewStatus("quota", pool(quota="5"), BEFORE),
        "limit": NewStatus("limit", replace(FIGURES, gpu=replace(FIGURES.gpu, limit="9")), BEFORE),
        "month": NewStatus("month", pool(month=month), BEFORE),
    }
    figures = [NewStatus("figures", FIGURES, BEFORE)] * 100
    assert [each.target for each in due([*figures, *stated.values()], 0.0)] == list(stated)


def test_another_fair_share_comes_before_other_figures() -> None:
    """The extender admits pods without a gate by it."""
    new = [NewStatus("figures", FIGURES, BEFORE)] * 10
    new.append(NewStatus("share", pool(fair_share="3"), BEFORE, tried_at=9.0))
    assert due(new, 0.1)[0].target == "share"


def test_fair_shares_that_change_with_every_look_leave_figures_their_turns() -> None:
    tried_at = dict.fromkeys(range(60), 0.0)
    for second in range(1, 13):
        statuses = (pool(fair_share=str(second)) if at < 30 else FIGURES for at in tried_at)
        new = [
            NewStatus(at, status, BEFORE, tried_at[at])
            for at, status in enumerate(statuses)
            if at < 30 or not tried_at[at]
        ]
        tried_at.update((each.target, float(second)) for each in due(new, 1.0))
    assert all(tried_at.values())


def test_fair_shares_take_the_turns_that_no_figures_need() -> None:
    new: list[NewStatus[object]] = [
        NewStatus(at, pool(fair_share="3"), BEFORE, float(at)) for at in range(20)
    ]
    new.append(NewStatus("figures", FIGURES, BEFORE, 5.5))
    assert [each.target for each in due(new, 1.0)] == [0, 1, 2, 3, 4, 5, "figures", 6, 7, 8]


@pytest.mark.looptime
async def test_statuses_that_the_api_server_refuses_hold_up_no_others() -> None:
    names = [f"p{number:02}" for number in range(24)]
    state, client = ClusterState(), create_autospec(Client, instance=True)
    for name in names:
        state.apply(Upserted(project(name).build()))
    written: list[str] = []

    async def patch(_kind: Any, name: str, body: dict[str, Any], **_: Any) -> Any:
        if len(written) >= len(names) and name < "p12":
            raise RequestRefused("a policy refuses it")
        written.append(name)
        known = state.projects[name]
        return replace(known, status=convert(body["status"], QueueStatus))

    client.merge_patch.side_effect = patch
    recorder = create_autospec(EventRecorder, instance=True)
    reporter = Reporter(client, state, recorder, PastUseKeeper(state), lambda _: None)
    for milli in (0, 500, 500, 500):
        shares = {(name, "default"): QueueShare(requested=(milli, 0, 0)) for name in names}
        await reporter.report(Plan(shares=shares))
        await asyncio.sleep(1.0)
    assert sorted(written[len(names) :]) == names[12:]


@pytest.mark.looptime
async def test_a_status_that_is_always_refused_is_not_examined_each_second() -> None:
    state, client = ClusterState(), create_autospec(Client, instance=True)
    group = pod_group("g", 1)
    for built in (group, pod("a").needs(1000).gang("g")):
        state.apply(Upserted(built.build()))
    client.merge_patch.side_effect = RequestRefused("a policy refuses it")
    recorder = create_autospec(EventRecorder, instance=True)
    reporter = Reporter(client, state, recorder, PastUseKeeper(state), lambda _: None)
    for _ in range(120):
        await reporter.report(Plan())
        await asyncio.sleep(1.0)
    assert 3 <= client.merge_patch.call_count < 15
    client.merge_patch.side_effect = None
    client.merge_patch.return_value = group.build()
    n_refused = client.merge_patch.call_count
    for _ in range(int(CAP_S) + 1):
        await reporter.report(Plan())
        await asyncio.sleep(1.0)
    assert client.merge_patch.call_count == n_refused + 1
