"""A plan that is made in one step is the one that the search comes to by itself."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.policy.preemption.search import Search
from extender.policy.preemption.swap import swap
from extender.scenario.load import case_of
from extender.scenario.snapshot import settings_of, take_snapshot
from extender.scenario.world import World

Entry = dict[str, Any]
_ON_A_CARD: list[list[int | str]] = [[1], [1], ["0.5", "0.5"], ["0.5"]]
_SIZES: list[int | str] = [1, 1, "0.5"]
_SWAP = "extender.policy.preemption.search.swap"


@st.composite
def full_clusters(draw: st.DrawFn) -> Entry:
    """Nodes full of single pods without quota, and others like them that have one."""
    n_nodes, n_cards = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    types = [draw(st.sampled_from("vw")) for _ in range(n_nodes)]
    nodes = [
        {"name": f"n{at}", "gpus": n_cards, "labels": {"type": types[at]}} for at in range(n_nodes)
    ]
    jobs: list[Entry] = []
    for at in range(n_nodes * n_cards):
        node, card = at % n_nodes, str(at // n_nodes)
        for size in draw(st.sampled_from(_ON_A_CARD)):
            task: Entry = {"name": "t", "gpu": size, "state": "running", "node": f"n{node}"}
            task["cards"] = [card]
            if draw(st.integers(0, 3)) == 0:
                task["nodeSelector"] = {"type": types[node]}
            jobs.append(_job(draw, len(jobs), "old", task))
    for _ in range(draw(st.integers(1, 6))):
        waiting: Entry = {"name": "t", "gpu": draw(st.sampled_from(_SIZES))}
        if draw(st.integers(0, 3)) == 0:
            waiting["nodeSelector"] = {"type": draw(st.sampled_from("vw"))}
        jobs.append(_job(draw, len(jobs), draw(st.sampled_from(["new", "old"])), waiting))
    stages = ["allocate", "consolidate", "reclaim", "preempt"]
    queues = [
        {"name": "old", "gpu": {"quota": draw(st.integers(0, 2))}},
        {"name": "new", "gpu": {"quota": draw(st.integers(1, 6))}},
    ]
    chosen = {"stages": stages, "reclaimMovesVictims": draw(st.booleans())}
    cluster = {"settings": chosen, "nodes": nodes, "queues": queues, "jobs": jobs}
    return {"scenario": "v1", "id": "full"} | cluster


def _job(draw: st.DrawFn, number: int, queue: str, task: Entry) -> Entry:
    return {
        "name": f"j{number}",
        "queue": queue,
        "priority": draw(st.sampled_from([50, 50, 25, 75])),
        "runningFor": draw(st.integers(0, 1000)),
        "tasks": [task],
    }


def decided(entry: Entry) -> Plan:
    case = case_of(entry, "full")
    return decide(take_snapshot(World.of(case)), settings_of(case))


def test_plans_made_in_one_step_are_those_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    n_swapped = 0

    def counted(tried: Search) -> bool:
        nonlocal n_swapped
        is_done = swap(tried)
        n_swapped += is_done
        return is_done

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(full_clusters())
    def compare(entry: Entry) -> None:
        monkeypatch.setattr(_SWAP, counted)
        quick = decided(entry)
        monkeypatch.setattr(_SWAP, lambda _: False)
        assert quick == decided(entry)

    compare()
    assert n_swapped > 100
