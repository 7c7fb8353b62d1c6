"""How events about objects that users write enter the model: queues, node pools, pod groups,
topologies and disruption budgets. Workloads and nodes that depend on them are refreshed."""

from typing import Any

from extender.api.events import Removed
from extender.api.kinds import GpuNodePool, GpuProject, GpuTopology
from extender.api.objects import PodDisruptionBudget
from extender.state.budgets import BudgetIndex
from extender.state.fleet.fleet import Fleet
from extender.state.queues import Queues
from extender.state.topologies import Topologies
from extender.state.workloads.collection import Workloads


class QueueIntake:
    """Stores what the API server sends of these kinds. A deleted object is forgotten only if no
    newer one of the same name is stored."""

    def __init__(
        self,
        queues: Queues,
        topologies: Topologies,
        budgets: BudgetIndex,
        fleet: Fleet,
        workloads: Workloads,
    ) -> None:
        self._queues = queues
        self._topologies = topologies
        self._budgets = budgets
        self._fleet = fleet
        self._workloads = workloads

    def drop_department(self, gone: Removed) -> None:
        """Forget the department."""
        if _is_same(self._queues.departments.get(gone.name), gone):
            self._queues.drop_department(gone.name)

    def put_project(self, project: GpuProject) -> None:
        """Store the project; its namespaces may have changed."""
        self._workloads.touch_namespaces(self._queues.set_project(project))

    def drop_project(self, gone: Removed) -> None:
        """Forget the project."""
        if _is_same(self._queues.projects.get(gone.name), gone):
            self._workloads.touch_namespaces(self._queues.drop_project(gone.name))

    def put_pool(self, pool: GpuNodePool) -> None:
        """Store the pool; nodes may have changed pools."""
        if self._queues.set_pool(pool):
            self._touch_pools()

    def drop_pool(self, gone: Removed) -> None:
        """Forget the pool."""
        if _is_same(self._queues.pools.get(gone.name), gone):
            self._queues.drop_pool(gone.name)
            self._touch_pools()

    def _touch_pools(self) -> None:
        self._workloads.touch_all()
        self._fleet.touch_all()

    def put_topology(self, topology: GpuTopology) -> None:
        """Store the topology."""
        if self._topologies.set_topology(topology):
            self._workloads.touch_all()

    def drop_topology(self, gone: Removed) -> None:
        """Forget the topology."""
        if _is_same(self._topologies.known.get(gone.name), gone):
            self._topologies.drop_topology(gone.name)
            self._workloads.touch_all()

    def drop_group(self, gone: Removed) -> None:
        """Forget the pod group."""
        if _is_same(self._workloads.groups.get(f"{gone.namespace}/{gone.name}"), gone):
            self._workloads.drop_group(gone.namespace, gone.name)

    def put_budget(self, budget: PodDisruptionBudget) -> None:
        """Store the budget."""
        if self._budgets.set_budget(budget):
            self._workloads.touch_namespaces((budget.metadata.namespace,))

    def drop_budget(self, gone: Removed) -> None:
        """Forget the budget."""
        if self._budgets.drop_budget(gone.namespace, gone.name, gone.uid):
            self._workloads.touch_namespaces((gone.namespace,))


def _is_same(obj: Any, gone: Removed) -> bool:
    """Whether the stored object is the deleted one, and not a newer one of its name."""
    return obj is not None and obj.metadata.uid == gone.uid
