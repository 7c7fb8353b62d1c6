"""Hashes of the policy's decisions, which refactoring must leave unchanged.

`python -m tests.tools.plan_hash` prints one line per group of cases or clusters. `--check` compares
them with `plan_hash.txt` beside this file, `--write` stores them there. A commit that changes
decisions on purpose stores the new hashes and says which cases differ. Decisions (placements,
evictions, moves, shares) and messages (why workloads are pending) have separate hashes, to
distinguish changes of wording from changes of plans.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from time import perf_counter_ns
from typing import Any, ClassVar
from unittest import mock

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

from extender.policy.decide import decide
from extender.policy.plan import Placement, Plan
from extender.scenario import run
from extender.scenario.errors import ScenarioError
from extender.scenario.load import case_of
from extender.scenario.model.case import Case
from extender.scenario.outcome import Outcome
from extender.scenario.world import World
from tests.scenarios.clusters import Entry, entries
from tests.scenarios.listed import OWN, cases_in
from tests.scenarios.wide_clusters import crowded_entries, wide_entries
from tests.support.built import require_current_kernels

STORED = Path(__file__).with_suffix(".txt")
#: Folders of cases, each a group.
FOLDERS = ("own", "run-ai", "determined")
_OTHERS = ("demand-weighted", "priority")
#: Kinds of random clusters -> their strategy and number.
CLUSTERS: dict[str, tuple[st.SearchStrategy[Entry], int]] = {
    "simple": (entries(), 250),
    "wide": (wide_entries(), 250),
    "other-policies": (wide_entries(_OTHERS), 200),
    "crowded": (crowded_entries(), 200),
    "crowded-other-policies": (crowded_entries(_OTHERS), 100),
    "few": (crowded_entries(("fairshare", *_OTHERS)), 50),
}
#: Groups that take seconds.
QUICK = (*FOLDERS, "few")


class Digest:
    """Hashes over plans: `decisions` and `messages` in their order, `n` plans so far."""

    def __init__(self) -> None:
        self.decisions, self.messages, self.n = sha256(), sha256(), 0

    def add(self, plan: Plan) -> None:
        """Add a plan."""
        self.decisions.update(repr(list(_decisions(plan))).encode())
        self.messages.update(repr(list(_messages(plan))).encode())
        self.n += 1

    def told(self) -> str:
        """The line of one group."""
        first, second = (each.hexdigest()[:16] for each in (self.decisions, self.messages))
        return f"{self.n} plans, decisions {first}, messages {second}"


def hash_of(group: str) -> str:
    """The line of the group."""
    digest = Digest()
    if group in FOLDERS:
        for case in cases_in(OWN / group):
            for plan in _plans_of_case(case):
                digest.add(plan)
    else:
        for entry in drawn(*CLUSTERS[group]):
            for plan in _plans_to_rest(entry):
                digest.add(plan)
    return digest.told()


def stored() -> dict[str, str]:
    """The stored line of each group."""
    lines = STORED.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def drawn(clusters: st.SearchStrategy[Entry], n: int, start: int = 0) -> list[Entry]:
    """`n` clusters, drawn from the seed `start`, independently of the code under test."""
    found: list[Entry] = []
    _Uniform.start = start

    @settings(
        max_examples=n,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        backend=_BACKEND,
    )
    @given(clusters)
    def keep(entry: Entry) -> None:
        found.append(entry)

    keep()
    return found


class _Uniform(PrimitiveProvider):
    """Draws all choices with equal probability.

    Hypothesis' own provider prefers constants of the modules under test, so the same seed would
    draw other clusters whenever a number in the code changes.
    """

    lifetime = "test_function"
    start: ClassVar[int] = 0

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self._random = Random(self.start)

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self._random.random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        low = -(2**31) if min_value is None else min_value
        return self._random.randint(low, low + 2**32 if max_value is None else max_value)

    def draw_float(self, **_bounds: Any) -> float:
        raise NotImplementedError

    def draw_string(self, *_args: Any, **_bounds: Any) -> str:
        raise NotImplementedError

    def draw_bytes(self, *_args: Any, **_bounds: Any) -> bytes:
        raise NotImplementedError


_BACKEND = "ballast-uniform"
AVAILABLE_PROVIDERS[_BACKEND] = f"{_Uniform.__module__}.{_Uniform.__name__}"


def _plans_of_case(case: Case) -> list[Plan]:
    """The plans of all cycles of the case; a contradictory case has fewer or none."""
    found: list[Plan] = []

    def keep(*args: Any) -> Plan:
        plan = decide(*args)
        found.append(plan)
        return plan

    if not case.is_out_of_format:
        with mock.patch.object(run, "decide", keep):
            try:
                for _ in run.stories(case, perf_counter_ns):
                    pass
            except ScenarioError:
                pass
    return found


def _plans_to_rest(entry: Entry) -> Iterator[Plan]:
    """The plans of all cycles until nothing changes."""
    world = World.of(case_of(entry, "random"))
    for cycle in range(1, 2 * len(world.tasks) + 3):
        outcome: Outcome = run.run_cycle(world, cycle, perf_counter_ns)
        yield outcome.plan
        if not any(outcome.changed()):
            return
        world.settle(outcome.after)


def _decisions(plan: Plan) -> Iterator[object]:
    """All decisions of the plan, as plain values in the plan's order."""
    for admission in plan.admissions:
        places = [_place(each) for each in admission.placements]
        yield "admission", admission.workload.key, admission.state, places
    for eviction in plan.evictions:
        beneficiary = eviction.beneficiary
        yield "eviction", eviction.pod.uid, eviction.workload, str(eviction.reason), beneficiary
    for move in plan.moves:
        yield "move", _place(move.placement), move.workload, str(move.reason), move.beneficiary
    for key, wait in sorted(plan.waits.items()):
        yield "wait", key, str(wait.reason)
    for (queue, pool), share in sorted(plan.shares.items()):
        figures = (share.quota, share.limit, share.fair_share, share.allocated)
        more = (share.allocated_non_preemptible, share.requested)
        yield "share", queue, pool, figures, more
    yield "drops", plan.drops
    yield "held back", [(each.uid, each.budgets, each.until) for each in plan.held_back]
    yield "cut", sorted(plan.cut), plan.cut_stages


def _messages(plan: Plan) -> Iterator[object]:
    for eviction in plan.evictions:
        yield eviction.pod.uid, eviction.note
    for key, wait in sorted(plan.waits.items()):
        yield key, wait.detail


def _place(placement: Placement) -> object:
    cards = [(card.index, card.milli, card.memory_mib) for card in placement.cards]
    return placement.pod.uid, placement.node, cards


def main(argv: Iterable[str] | None = None) -> int:
    """Print, store or compare the hashes; returns 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.plan_hash", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the hashes")
    parser.add_argument("--check", action="store_true", help="compare with the stored hashes")
    asked = parser.parse_args(None if argv is None else list(argv))
    require_current_kernels()
    told = {group: hash_of(group) for group in (*FOLDERS, *CLUSTERS)}
    lines = [f"{group}: {line}" for group, line in told.items()]
    if asked.write:
        STORED.write_text("\n".join(lines) + "\n")
    if asked.check:
        expected = stored()
        lines = [
            f"{group}: {line}\n  stored: {expected.get(group, 'nothing')}"
            for group, line in told.items()
            if line != expected.get(group)
        ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return int(asked.check and bool(lines))


if __name__ == "__main__":
    sys.exit(main())
