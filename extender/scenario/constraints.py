"""Requests and constraints of tasks, as views of the model. Equal ones are one object."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from extender.api.demand import Demand
from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement, Toleration
from extender.api.units import MILLI_PER_GPU, UnitError
from extender.scenario import amounts
from extender.scenario.cluster import Cluster
from extender.scenario.model.jobs import Job, PodTerm, Task
from extender.state import model as state
from extender.state.model import ANYWHERE, Constraints


@dataclass(slots=True)
class Shared:
    """Demands and constraints of one scenario, each created once."""

    cluster: Cluster
    _demands: dict[Demand, Demand] = field(default_factory=dict)
    _constraints: dict[bytes, Constraints] = field(default_factory=dict)

    def demand_of(self, task: Task) -> Demand:
        """The request of each pod of the task; raises UnitError."""
        devices, milli, mib = _cards(task)
        counted = {**task.resources, **task.mig}
        demand = Demand(
            devices=devices,
            milli=milli,
            gpu_memory_mib=mib,
            cpu_milli=amounts.cpu(task.cpu),
            memory_mib=self.cluster.memory(task.memory, is_asked=True),
            counted=tuple(sorted((name, n) for name, n in counted.items() if n)),
        )
        return self._demands.setdefault(demand, demand)

    def constraints_of(self, job: Job, task: Task) -> Constraints:
        """The constraints of the task itself, and of its queues for this kind of work."""
        rules = [Requirement(r.key, r.operator, list(r.values)) for r in task.node_affinity]
        for queue in self.cluster.lineage(job.queue):
            allowed = queue.node_types.get(job.kind, {})
            rules += (Requirement(key, "In", list(values)) for key, values in allowed.items())
        terms = [NodeSelectorTerm(match_expressions=rules)] if rules else []
        found = Constraints(
            node_selector=tuple(sorted(task.node_selector.items())),
            affinity=NodeSelector(node_selector_terms=terms) if terms else None,
            tolerations=tuple(
                Toleration(key=t.key, operator=t.operator, value=t.value, effect=t.effect)
                for t in task.tolerations
            ),
            pod_affinity=tuple(_terms(task.pod_affinity)),
            pod_anti_affinity=tuple(_terms(task.pod_anti_affinity)),
            delivery=task.delivery if self.demand_of(task).is_gpu_work else None,
        )
        if found == ANYWHERE:
            return ANYWHERE
        return self._constraints.setdefault(msgspec.json.encode(found), found)


def _terms(terms: list[PodTerm]) -> Iterator[state.PodTerm]:
    for term in terms:
        yield state.PodTerm(term.topology_key, tuple(sorted(term.labels.items())))


def _cards(task: Task) -> tuple[int, int, int]:
    """(cards, milli of each, MiB of each) of the task's request; raises UnitError."""
    usual = 0 if task.gpu_memory or task.mig else 1
    milli = amounts.gpus(usual if task.gpu is UNSET else task.gpu)
    if task.gpu_memory:
        if milli:
            raise UnitError("it asks for GPUs both by gpu and by gpuMemory; use one of them")
        return task.devices, 0, task.gpu_memory
    if milli < MILLI_PER_GPU:
        return (task.devices, milli, 0) if milli else (0, 0, 0)
    if milli % MILLI_PER_GPU:
        raise UnitError(f"gpu: {task.gpu} is neither a fraction of a card nor whole cards")
    return milli // MILLI_PER_GPU, MILLI_PER_GPU, 0
