"""Use of the projects' monthly budgets of GPU-hours, in a run in which time passes.

The month does not end during a run: allocations are added to the use stated in the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replaced

from extender.api.months import month_of
from extender.scenario.cluster import Cluster
from extender.state.model import GPU, MonthHours, QueueView

#: (queue, node pool)
_Key = tuple[str, str]


@dataclass(slots=True)
class MonthAccounts:
    """Budgets and their use, by queue and node pool."""

    accounts: dict[_Key, MonthHours] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster) -> "MonthAccounts":
        """The budgets in the file."""
        return cls(
            {
                (view.name, pool): quota.gpu.month
                for view in cluster.queue_views.values()
                for pool, quota in view.pools.items()
                if quota.gpu.month is not None
            }
        )

    def add(self, held: Mapping[tuple[str, str, int], int], seconds: int) -> None:
        """Add allocations, by queue, node pool and resource, over `seconds`."""
        for key, hours in self.accounts.items():
            more = held.get((*key, GPU), 0) * seconds
            self.accounts[key] = replaced(hours, used=hours.used + more)

    def spent_quotas(self, cluster: Cluster) -> dict[_Key, int]:
        """The GPU quota by queue and node pool, if the budget is used up."""
        return {
            key: cluster.queue_views[key[0]].pools[key[1]].gpu.quota
            for key, hours in self.accounts.items()
            if hours.used >= hours.budget
        }

    def views(self, queues: dict[str, QueueView], now_s: int) -> dict[str, QueueView]:
        """The queues with their use up to now."""
        if not self.accounts:
            return queues
        found = dict(queues)
        for (name, pool), hours in self.accounts.items():
            view, month = found[name], replaced(hours, month=month_of(now_s))
            quota = view.pools[pool]
            pools = {**view.pools, pool: replace(quota, gpu=replace(quota.gpu, month=month))}
            found[name] = replace(view, pools=pools)
        return found
