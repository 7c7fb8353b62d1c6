"""A decision follows a relevant change at once, other decisions follow after a pause."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest
from msgspec.structs import replace

from extender.api.events import Event, Removed, Upserted
from extender.api.objects import ClaimSource, Namespace, ObjectMeta, Pod, Volume
from extender.cycle import metrics
from extender.cycle.controller import Controller
from extender.cycle.decision import timed_decision
from extender.cycle.pace import LONGEST_S, Basis, Pace
from extender.cycle.replica import ControlOptions
from extender.cycle.term import Term
from extender.kube.client import Client
from extender.kube.errors import NotFound
from extender.policy.plan import Plan
from tests.support.builders import gpu_node, node, pod, project, row, whole
from tests.support.metrics import value_of

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("plan", "computed_s", "pause_s"),
    [
        (Plan(), 0.005, 2.0),
        (Plan(), 0.5, 10.0),
        (Plan(), 3.0, LONGEST_S),
        (Plan(drops=["ns/a"]), 0.5, 2.0),
        (Plan(cut=frozenset({"ns/a"})), 0.5, 0.0),
    ],
)
def test_without_a_change_a_pause_follows_that_grows_with_what_a_decision_costs(
    plan: Plan, computed_s: float, pause_s: float
) -> None:
    pace, basis = Pace(2.0), Basis("as it is", frozenset[str]())
    assert pace.is_due(basis, 0.0)
    pace.note(basis, plan, computed_s, 10.0)
    assert pace.is_due(basis._replace(model_version="changed"), 10.0)
    assert pace.is_due(basis._replace(protected_pods=frozenset({"uid-a"})), 10.0)
    assert pace.is_due(basis, 10.0 + pause_s)
    assert not pace.is_due(basis, 9.9 + pause_s)


def cycles() -> tuple[float, float]:
    """How many cycles decided, and how many had nothing to decide anew."""
    done, unchanged = (metrics.CYCLES.labels(each) for each in ("done", "unchanged"))
    return value_of(done), value_of(unchanged)


class Office:
    """A controller that leads: `held` runs and `waits` waits for its card. Every decision takes
    half a second of CPU time by its own account."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client: Any = create_autospec(Client, instance=True)
        self.client.merge_patch.side_effect = NotFound("no API server")
        self.controller = Controller(self.client, self.client, ControlOptions("me"))
        for reflector in self.controller.reflector_of.values():
            reflector.catch_up = AsyncMock()  # type: ignore[method-assign]
        self.n_decisions = 0

        async def in_place(function: Any, *args: Any) -> Any:
            made = function(*args)
            if function is not timed_decision:
                return made
            self.n_decisions += 1
            return made[0], 0.5

        monkeypatch.setattr("extender.cycle.term.asyncio.to_thread", in_place)
        monkeypatch.setattr("extender.cycle.reports.beside.Reports.start", lambda *_: None)
        held = pod("held").needs(1000).bound("n1").build()
        for obj in (
            project("team-a").quota(1).build(),
            node("n1").gpus(1).gpu_milli(1000).build(),
            gpu_node("n1", 1)
            .labels({"ballast.dev/node-pool": "default"})
            .holds(row(held, whole(0), "bound"))
            .build(),
            held,
            pod("waits").needs(1000).build(),
        ):
            self.controller.state.apply(Upserted(obj))

    def labelled(self) -> list[str]:
        """The namespaces on which the label was written, in order."""
        return [call.args[1] for call in self.client.merge_patch.call_args_list]

    @asynccontextmanager
    async def leading(self) -> AsyncIterator["asyncio.Task[None]"]:
        """Leads, and has decided for the first time."""
        task = asyncio.create_task(Term(self.controller, transitions=3).run_cycles())
        try:
            await asyncio.sleep(1.5)
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_plan_that_comes_during_a_report_is_reported_with_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office, loop, starts = Office(monkeypatch), asyncio.get_running_loop(), []

    def start(*_: Any) -> bool:
        starts.append(loop.time())
        return len(starts) > 1

    monkeypatch.setattr("extender.cycle.reports.beside.Reports.start", start)
    async with office.leading():
        await asyncio.sleep(4.0)
    assert len(starts) == 2
    assert starts[1] - starts[0] <= office.controller.options.tick_s + 1.0


async def test_at_rest_a_decision_of_half_a_second_is_made_six_times_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office, before = Office(monkeypatch), cycles()
    async with office.leading():
        for number in range(600):
            seen = pod("waits").needs(1000).version(number + 2).told("NoQuota").build()
            office.controller.deliver(Upserted(seen))
            await asyncio.sleep(0.1)
    assert office.n_decisions in (6, 7)
    n_decided, n_unchanged = (now - then for now, then in zip(cycles(), before, strict=True))
    assert (n_decided, n_unchanged > n_decided) == (office.n_decisions, True)


async def test_the_time_of_writes_counts_as_rest_after_a_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second passes between two decisions of half a second, of which writing takes 0.8."""

    async def slow(*_: Any) -> None:
        await asyncio.sleep(0.8)

    monkeypatch.setattr("extender.cycle.commit.committer.Committer.carry_out", slow)
    office = Office(monkeypatch)
    async with office.leading():
        before = office.n_decisions
        for number in range(100):
            office.controller.deliver(Upserted(pod(f"p{number}").needs(1000).build()))
            await asyncio.sleep(0.1)
        assert office.n_decisions - before in (9, 10)


async def test_claims_of_many_pods_are_read_one_batch_right_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office, n_pods = Office(monkeypatch), 100
    office.client.get.side_effect = NotFound("no claim")
    for number in range(n_pods):
        made = pod(f"p{number}").needs(1000).build()
        data = Volume(name="data", persistent_volume_claim=ClaimSource(f"claim-{number}"))
        made = replace(made, spec=replace(made.spec, volumes=[data]))
        office.controller.state.apply(Upserted(made))
    async with office.leading():
        await asyncio.sleep(3.0)
    assert office.client.get.call_count == n_pods


async def test_a_model_that_cannot_be_looked_at_ends_no_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office = Office(monkeypatch)
    async with office.leading() as term:
        with monkeypatch.context() as broken:
            broken.setattr(office.controller.state, "version", lambda: 1 // 0)
            office.controller.deliver(Upserted(pod("comes").needs(1000).build()))
            await asyncio.sleep(5.0)
        n_before = office.n_decisions
        await asyncio.sleep(5.0)
        assert not term.done()
        assert office.n_decisions > n_before


async def test_a_model_that_takes_long_to_look_at_is_looked_at_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office, clock, looks = Office(monkeypatch), [0.0], 0

    def version() -> object:
        nonlocal looks
        looks += 1
        clock[0] += 0.1
        return "as it is"

    monkeypatch.setattr(office.controller.state, "version", version)
    monkeypatch.setattr("extender.cycle.controller.time.thread_time", lambda: clock[0])
    waiting = asyncio.create_task(office.controller.wait_for_change("as it is", 10.0))
    while not waiting.done():
        office.controller.deliver(Upserted(pod("waits").needs(1000).build()))
        await asyncio.sleep(0.01)
    assert looks in range(40, 51)


@pytest.mark.parametrize(
    "change",
    [
        Upserted(pod("comes").needs(1000).build()),
        Removed(Pod, "uid-held", "team-a", "held"),
        Upserted(node("n1").gpus(1).gpu_milli(1000).cordoned().version(9).build()),
        Upserted(gpu_node("n1", 2).version(9).build()),
        Upserted(project("team-a").quota(2).version(9).build()),
    ],
)
async def test_a_change_that_a_decision_reads_is_decided_on_at_once(
    monkeypatch: pytest.MonkeyPatch, change: Event
) -> None:
    office = Office(monkeypatch)
    async with office.leading():
        n_before = office.n_decisions
        office.controller.deliver(change)
        await asyncio.sleep(0.1)
        assert office.n_decisions == n_before + 1


async def test_a_namespace_that_needs_its_label_waits_for_no_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office = Office(monkeypatch)
    async with office.leading():
        n_before = office.n_decisions
        appears = Namespace(metadata=ObjectMeta(name="team-a"))
        office.controller._namespaces.deliver(Upserted(appears))
        await asyncio.sleep(0.1)
        assert office.n_decisions == n_before
    assert office.labelled() == ["team-a"]


async def test_a_namespace_that_a_project_comes_to_list_gets_its_label_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office = Office(monkeypatch)
    async with office.leading():
        office.controller._namespaces.deliver(Upserted(Namespace(metadata=ObjectMeta(name="more"))))
        await asyncio.sleep(0.1)
        listing = project("team-a").quota(1).namespaces("team-a", "more").version(9).build()
        office.controller.deliver(Upserted(listing))
        await asyncio.sleep(0.1)
        assert office.labelled() == ["more"]


async def test_work_that_a_cycle_had_no_time_for_is_counted_and_comes_first_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    term = Term(Office(monkeypatch).controller, transitions=3)
    of_stage = metrics.CUT_STAGES.labels("reclaim")
    before = value_of(of_stage)
    cut = frozenset({"ns/a", "ns/b"})
    term.note_cut(Plan(cut=cut, cut_stages=("reclaim",)))
    assert value_of(metrics.CUT_WORKLOADS) == 2
    assert value_of(of_stage) == before + 1
    assert term.settings().first == cut
    term.note_cut(Plan())
    assert value_of(metrics.CUT_WORKLOADS) == 0
    assert term.settings().first == frozenset()
