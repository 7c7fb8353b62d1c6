"""A node pool gets another name, by the steps of docs/operations.md."""

from typing import Any

import pytest

from extender.api.events import Removed, Upserted
from extender.api.kinds import GpuNodePool
from extender.api.objects import Node
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from extender.state.model import GPU
from tests.support.builders import department, gpu_node, node, pod, pool, project, row
from tests.support.builders.ledger import whole
from tests.support.builders.nodes import PoolBuilder
from tests.unit.state.model import state_of
from webhooks.catalog import Catalog
from webhooks.kinds.nodes import check_pool

NOW_S = 10_000


class Renaming:
    """A cluster of one pool with two nodes of two cards: team-a holds one, which is its quota, and
    team-b borrows the other. Work of team-a waits. A running pod and the pending one name the pool.
    No step may start, stop or move a pod, and the webhook refuses none."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new
        self.catalog = Catalog()
        held = [
            pod("a").of("team-a").needs(1000, devices=2).pools(old).bound("n0").build(),
            pod("b").of("team-b").needs(1000, devices=2).bound("n1").build(),
        ]
        ledger = [
            gpu_node(f"n{at}", 2).holds(row(each, whole(0, 1), "bound")).build()
            for at, each in enumerate(held)
        ]
        self.waits = pod("w").of("team-a").needs(1000, devices=2).pools(old).build()
        self.state: ClusterState = state_of(*self.queues(old))
        self.write(pool(old, tier="gold").without_preemption().build())
        for each in (self.node("n0"), self.node("n1"), *ledger, *held, self.waits):
            self.write(each)

    def node(self, name: str, **labels: str) -> Node:
        """A node of the pool."""
        return node(name).labels({"tier": "gold", **labels}).gpus(2).build()

    def pool(self, name: str) -> PoolBuilder:
        """A pool of the nodes with a label of its name."""
        return pool(name, tier="gold", pool=name)

    def queues(self, *pools: str) -> list[Any]:
        """The department and the projects with the same figures in each of these pools."""
        science, first, second = department("science"), project("team-a"), project("team-b")
        for name in pools:
            science.quota(4, pool=name)
            first.quota(2, pool=name)
            second.quota(0, pool=name)
        teams = (each.default_pools(*pools).build() for each in (first, second))
        return [science.build(), *teams]

    def write(self, written: Any) -> None:
        """Create or replace the object."""
        if isinstance(written, GpuNodePool):
            assert [each for each in check_pool(written, self.catalog) if each.is_refused] == []
        self.catalog.deliver(Upserted(written))
        self.state.apply(Upserted(written))

    def step(self, *written: Any, removed: Any = None) -> Plan:
        """The decisions after each of these writes; none changes anything. Returns the last."""
        if removed is not None:
            meta = removed.metadata
            self.state.apply(Removed(type(removed), meta.uid, meta.namespace, meta.name))
        for each in written:
            self.write(each)
            plan = self.decided()
        return plan

    def decided(self) -> Plan:
        """The decision, which starts, stops and moves nothing."""
        self.state.validate_state()
        plan = decide(self.state.snapshot(NOW_S))
        assert (plan.admissions, plan.evictions, plan.moves) == ([], [], [])
        return plan

    def held_in(self, plan: Plan, name: str) -> list[int]:
        """What the projects hold in the pool, in milli-GPU."""
        return [plan.shares[team, name].allocated[GPU] for team in ("team-a", "team-b")]


@pytest.mark.parametrize(("old", "new"), [("gold", "a100"), ("gold", "h100")])
def test_nothing_starts_stops_or_moves_while_a_pool_gets_another_name(old: str, new: str) -> None:
    made = Renaming(old, new)
    assert made.held_in(made.decided(), old) == [2000, 2000]
    # 1. The nodes have a label with the name.
    made.step(made.node("n0", pool=old), made.node("n1", pool=old))
    made.step(made.pool(old).without_preemption().build())
    # 2. Figures under both names.
    made.step(*made.queues(old, new))
    # 3. The new pool, and the nodes in it.
    made.step(made.pool(new).without_preemption().build())
    plan = made.step(made.node("n0", pool=new), made.node("n1", pool=new))
    assert made.held_in(plan, new) == [2000, 2000]
    # 4. Pending work that names the old pool is created again.
    again = pod("again").of("team-a").needs(1000, devices=2).pools(new).build()
    made.step(again, removed=made.waits)
    # 5. The old name is gone.
    made.step(*made.queues(new))
    plan = made.step(made.pool(new).build(), removed=made.pool(old).build())
    assert made.state.problems() == []
    assert made.held_in(plan, new) == [2000, 2000]
    assert f"pool {new}" in plan.waits["team-a/again"].detail


def test_full_quotas_in_both_pools_would_stop_work_if_preemption_were_enabled() -> None:
    made = Renaming("gold", "h100")
    made.step(made.node("n0", pool="gold"), made.node("n1", pool="gold"))
    made.step(made.pool("gold").without_preemption().build(), *made.queues("gold", "h100"))
    made.step(made.pool("h100").without_preemption().build(), made.node("n0", pool="h100"))
    made.write(made.pool("gold").build())
    plan = decide(made.state.snapshot(NOW_S))
    assert [each.pod.name for each in plan.evictions] == ["b"]
