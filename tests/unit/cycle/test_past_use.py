"""Past usage of queues: counted if a node pool requires it, and kept for the next leader."""

from typing import Any

from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.kinds import GpuNodePoolStatus, PastUse, PoolUse, QueueStatus
from extender.cycle.past_use import STEP_S, TELL_S, PastUseKeeper
from extender.policy.plan import Plan, QueueShare
from extender.state.cluster import ClusterState
from extender.state.model import Amounts
from tests.support.builders import department, gpu_node, node, pool, project

HOUR_S = 3600
START_S = 1_000_000


def state_of(*objects: Any) -> ClusterState:
    """A cluster of four cards in the default pool, of which projects a and b may have two each."""
    state = ClusterState()
    queues = project("a").of("d").quota(2), project("b").of("d").quota(2)
    for built in (department("d").quota(4), *queues, node("n").gpus(4), gpu_node("n", 4)):
        state.apply(Upserted(built.build()))
    for obj in objects or (pool("default").remembers(HOUR_S).build(),):
        state.apply(Upserted(obj))
    return state


def holding(**gpus: int) -> Plan:
    """A plan in which these projects hold so many GPUs."""
    shares = {name: QueueShare(allocated=(1000 * n, 0, 0)) for name, n in gpus.items()}
    return Plan(shares={(name, "default"): share for name, share in shares.items()})


def past_use(state: ClusterState, queue: str) -> int:
    """Millionths of the pool's GPUs."""
    return state.snapshot(0).queues[queue].pools["default"].gpu.usage_ppm


def run(keeper: PastUseKeeper, state: ClusterState, plan: Plan, seconds: range) -> None:
    for at_s in seconds:
        keeper.step(plan, state.snapshot(START_S + at_s))


def test_a_queue_that_held_half_of_the_pool_used_half_of_it() -> None:
    state = state_of()
    run(PastUseKeeper(state), state, holding(a=2, b=0), range(0, 600, 10))
    assert 499_000 < past_use(state, "a") <= 500_000
    assert past_use(state, "b") == 0


def test_what_is_older_counts_less() -> None:
    state = state_of()
    keeper = PastUseKeeper(state)
    run(keeper, state, holding(a=4, b=0), range(0, 2 * HOUR_S, 60))
    run(keeper, state, holding(a=0, b=4), range(2 * HOUR_S, 4 * HOUR_S, 60))
    assert past_use(state, "b") > 3 * past_use(state, "a") > 0


def test_nothing_is_counted_where_no_pool_asks_for_it() -> None:
    state = state_of(pool("default").build())
    keeper = PastUseKeeper(state)
    run(keeper, state, holding(a=4), range(0, 600, 10))
    assert past_use(state, "a") == 0
    assert keeper.of_queue("a") == {}


def test_accounts_are_reported_at_most_once_a_minute() -> None:
    state = state_of()
    keeper = PastUseKeeper(state)
    told: set[Amounts] = set()
    for at_s in range(0, 5 * TELL_S, STEP_S):
        keeper.step(holding(a=2), state.snapshot(START_S + at_s))
        past = keeper.of_queue("a")["default"]
        told.add((past.gpu, past.cpu, past.as_of))
    assert len(told) == 5


def test_a_new_leader_goes_on_where_the_last_has_left_off() -> None:
    past = PastUse(gpu=2000 * HOUR_S, as_of=START_S)
    had = PastUse(gpu=4000 * HOUR_S, as_of=START_S)
    told = QueueStatus(node_pools=[PoolUse(name="default", past=past)])
    state = state_of(
        replace(pool("default").remembers(HOUR_S).build(), status=GpuNodePoolStatus(past=had)),
        replace(project("a").of("d").quota(2).build(), status=told),
    )
    run(PastUseKeeper(state), state, holding(a=2, b=0), range(10, 600, 10))
    assert 499_000 < past_use(state, "a") <= 501_000
    assert past_use(state, "b") == 0


def test_accounts_are_forgotten_when_the_pool_stops_counting() -> None:
    state = state_of()
    keeper = PastUseKeeper(state)
    run(keeper, state, holding(a=2), range(0, 600, 10))
    state.apply(Upserted(pool("default").build()))
    run(keeper, state, holding(a=2), range(600, 700, 10))
    assert past_use(state, "a") == 0
    assert keeper.of_queue("a") == {}
