"""Past use of queues, in node pools that count it; stored in statuses for any later leader.

Every few seconds the current allocation is added to the account of each queue and of the pool, and
older use decays. Accounts are written to statuses at most once a minute. A new leader reads them
there, and assumes that the present allocation has lasted since.

Recent allocation (`held_lately`) is counted for every node pool, and starts anew with each leader:
it only breaks ties between queues with equal shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import UnsetType

from extender.api.kinds import PastUse
from extender.policy.plan import Plan
from extender.policy.queues.usage import HeldLately, advance, as_ppm
from extender.state.cluster import ClusterState
from extender.state.model import NOTHING, Amounts, department_of
from extender.state.snapshot import Snapshot

#: Seconds between two additions.
STEP_S: Final = 5
#: Seconds between two writes of accounts to statuses.
TELL_S: Final = 60

#: The account of the pool's own capacity.
_POOL: Final = ""

#: (queue, node pool)
_Key = tuple[str, str]


@dataclass(slots=True)
class _Account:
    used: Amounts
    as_of: int


class PastUseKeeper:
    """The accounts of one term of leadership."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._accounts: dict[_Key, _Account] = {}
        self._published: dict[str, dict[str, PastUse]] = {}
        self._stepped_at = self._published_at = 0
        self._lately = HeldLately()

    def step(self, plan: Plan, snapshot: Snapshot) -> None:
        """Add the plan's allocations if a step is due; costs the queues that hold anything."""
        elapsed_s, half_lives = snapshot.now_s - self._stepped_at, self._half_lives()
        if elapsed_s < STEP_S and (half_lives or not self._accounts):
            return
        if self._stepped_at:
            held_now = {key: share.allocated for key, share in plan.shares.items()}
            held_now = {key: held for key, held in held_now.items() if any(held)}
            self._lately.step(held_now, elapsed_s)
            self._state.set_held_lately(self._lately.averages)
        self._stepped_at = snapshot.now_s
        if not half_lives and not self._accounts:
            return
        held = {key: share.allocated for key, share in plan.shares.items() if key[1] in half_lives}
        capacity = snapshot.nodes.ready_capacity(half_lives)
        held |= {(_POOL, pool): amounts for pool, amounts in capacity.items()}
        self._accounts = {
            key: self._advanced(key, amounts, snapshot.now_s, half_lives[key[1]])
            for key, amounts in held.items()
        }
        self._publish()
        if snapshot.now_s - self._published_at >= TELL_S or not half_lives:
            self._published_at = snapshot.now_s
            self._published = {}
            for (queue, pool), account in self._accounts.items():
                self._published.setdefault(queue, {})[pool] = _as_past_use(account)

    def of_queue(self, queue: str) -> Mapping[str, PastUse]:
        """The queue's past use by node pool, for its status."""
        return self._published.get(queue, {})

    def of_pool(self, pool: str) -> PastUse | None:
        """The pool's own account, for its status."""
        return self._published.get(_POOL, {}).get(pool)

    def _half_lives(self) -> dict[str, int]:
        """Half-life by node pool, for pools that count past use."""
        return {
            name: pool.spec.time_based_fair_share.half_life_seconds
            for name, pool in self._state.node_pools.items()
            if pool.spec.time_based_fair_share.weight_percent > 0
        }

    def _advanced(self, key: _Key, held: Amounts, now_s: int, half_life_s: int) -> _Account:
        account = self._accounts.get(key) or self._stored(key)
        if account is None:
            return _Account(NOTHING, now_s)
        elapsed_s = max(0, now_s - account.as_of)
        return _Account(advance(account.used, held, elapsed_s, half_life_s), now_s)

    def _stored(self, key: _Key) -> _Account | None:
        """The account in the status, written by an earlier leader."""
        queue, pool = key
        past: PastUse | UnsetType | None = None
        if queue == _POOL:
            past = self._state.node_pools[pool].status.past
        else:
            department = department_of(queue)
            owners = self._state.departments if department else self._state.projects
            owner = owners.get(department or queue)
            for use in owner.status.node_pools if owner else ():
                if use.name == pool:
                    past = use.past
        if not isinstance(past, PastUse):
            return None
        return _Account((past.gpu, past.cpu, past.memory), past.as_of)

    def _publish(self) -> None:
        """Make the accounts visible to decisions."""
        past_use: dict[str, dict[str, Amounts]] = {}
        for (queue, pool), account in self._accounts.items():
            if queue != _POOL:
                had = self._accounts[_POOL, pool].used
                past_use.setdefault(queue, {})[pool] = as_ppm(account.used, had)
        self._state.set_past_use(past_use)


def _as_past_use(account: _Account) -> PastUse:
    gpu, cpu, memory = account.used
    return PastUse(gpu=gpu, cpu=cpu, memory=memory, as_of=account.as_of)
