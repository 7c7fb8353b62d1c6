"""Whether new places are where their tasks may be: by node, by neighbours, by nearness.

Written from the rules of Kubernetes and of the scenario file, beside what the policy has, so that
one checks the other. What is placed is looked at as it will be once all that leave have left.
"""

from collections.abc import Iterable, Iterator, Mapping

from extender.scenario.model.fleet import NodeTaint
from extender.scenario.model.jobs import Job, PodTerm, Requirement, Task, Toleration
from extender.scenario.outcome import Outcome
from extender.scenario.places import Place
from extender.scenario.world import RunJob, World, task_names
from extender.state.model import GroupView

_Labels = Mapping[str, str]


def misplaced(world: World, outcome: Outcome) -> Iterator[str]:
    """One sentence for each new place that its task may not have."""
    nodes = {node.name: node for node in world.cluster.case.nodes}
    around = _Surroundings(world, outcome)
    for job in world.jobs.values():
        new = set()
        for task, id_ in _tasks(job.spec):
            place = outcome.after.get(id_)
            if place is None or not _is_new(outcome, id_, place) or place.node not in nodes:
                continue
            new.add(id_)
            labels = around.labels_of(place.node)
            for rule in _rules(world, job, task):
                if not _meets(rule, labels):
                    yield f"{id_}: {place.node} does not meet {rule.key} {rule.operator}"
            for taint in nodes[place.node].taints:
                if not _is_tolerated(taint, task.tolerations):
                    yield f"{id_}: {place.node} has taint {taint.key}, which it does not tolerate"
            yield from around.unwanted(job, task, id_, place)
        if new:
            yield from _far_apart(job, job.tree, new, around)


def _tasks(job: Job) -> Iterator[tuple[Task, str]]:
    for task in job.tasks:
        for name in task_names(task):
            yield task, f"{job.name}/{name}"


def _is_new(outcome: Outcome, id_: str, place: Place) -> bool:
    was = outcome.before[id_]
    return place is not was and place.has_later


def _rules(world: World, job: RunJob, task: Task) -> Iterator[Requirement]:
    """All expressions that must hold of the node's labels."""
    for key, value in task.node_selector.items():
        yield Requirement(key=key, values=[value])
    yield from task.node_affinity
    for queue in world.cluster.lineage(job.spec.queue):
        for key, values in queue.node_types.get(job.spec.kind, {}).items():
            yield Requirement(key=key, values=values)


def _meets(rule: Requirement, labels: _Labels) -> bool:
    value = labels.get(rule.key)
    if rule.operator == "In":
        return value in rule.values
    if rule.operator == "NotIn":
        return value not in rule.values
    if rule.operator == "Exists":
        return value is not None
    if rule.operator == "DoesNotExist":
        return value is None
    if value is None or not value.lstrip("-").isdecimal():
        return False
    more = int(value) - int(rule.values[0])
    return more > 0 if rule.operator == "Gt" else more < 0


def _is_tolerated(taint: NodeTaint, tolerations: Iterable[Toleration]) -> bool:
    return taint.effect == "PreferNoSchedule" or any(
        each.effect in ("", taint.effect)
        and each.key in ("", taint.key)
        and (each.operator == "Exists" or (each.key != "" and each.value == taint.value))
        for each in tolerations
    )


class _Surroundings:
    """Where each task is once all victims have left. Tasks have no labels in a scenario, so a term
    selects all tasks of its namespace, or none if it names labels."""

    def __init__(self, world: World, outcome: Outcome) -> None:
        self._world = world
        self._outcome = outcome
        self._terms = {
            id_: (job, task) for job in world.jobs.values() for task, id_ in _tasks(job.spec)
        }
        self._is_any_picky = any(
            task.pod_affinity or task.pod_anti_affinity for _, task in self._terms.values()
        )

    def labels_of(self, node: str) -> _Labels:
        """The node's labels."""
        free = self._world.cluster.free
        ix = free.ix_of(node)
        return {} if ix is None else free.labels[ix]

    def node_of(self, id_: str) -> str:
        """Where the task is in the end; empty where it is nowhere."""
        place = self._outcome.after.get(id_)
        return place.node if place is not None and place.has_later else ""

    def levels_up_to(self, topology: str, level: str) -> tuple[str, ...]:
        """Labels of the topology, from the widest to `level`."""
        labels = self._world.cluster.topologies[topology]
        return labels[: labels.index(level) + 1]

    def unwanted(self, job: RunJob, task: Task, id_: str, place: Place) -> Iterator[str]:
        """What is wrong with those beside the task."""
        if not self._is_any_picky:
            return
        for term in task.pod_anti_affinity:
            for other in self._beside(job, term, id_, place.node):
                yield f"{id_}: is beside {other}, from which it keeps away"
        for other, (owner, its) in self._terms.items():
            for term in its.pod_anti_affinity:
                if other != id_ and id_ in self._beside(owner, term, other, self.node_of(other)):
                    yield f"{id_}: is beside {other}, which keeps away from it"
        for term in task.pod_affinity:
            if self._beside(job, term, id_, place.node):
                continue
            if self._is_elsewhere_before(place, job, term, id_):
                yield f"{id_}: has no company on {place.node}"

    def _beside(self, job: RunJob, term: PodTerm, id_: str, node: str) -> list[str]:
        """The other tasks in the domain of the node that the term selects."""
        domain = self.labels_of(node).get(term.topology_key)
        if not domain or term.labels:
            return []
        return [
            other
            for other, (owner, _) in self._terms.items()
            if other != id_
            and owner.spec.namespace == job.spec.namespace
            and self.labels_of(self.node_of(other)).get(term.topology_key) == domain
        ]

    def _is_elsewhere_before(self, place: Place, job: RunJob, term: PodTerm, id_: str) -> bool:
        """Whether a task that the term selects may be somewhere before this task is at its place:
        one that stays, or, if this task has to wait, any other that gets a place."""
        after, before = self._outcome.after, self._outcome.before
        return any(
            other != id_
            and owner.spec.namespace == job.spec.namespace
            and self.node_of(other) != ""
            and (place.status == "nominated" or after[other] is before[other])
            and term.topology_key in self.labels_of(self.node_of(other))
            for other, (owner, _) in self._terms.items()
        )


def _far_apart(
    job: RunJob, group: GroupView, new: set[str], around: _Surroundings
) -> Iterator[str]:
    """Groups that must be in one domain and are not, of those that get places."""
    ids = [
        task.id for task in job.tasks if _is_in(group, task.view.group, is_root=group is job.tree)
    ]
    rule = group.topology
    if rule is not None and rule.required and new.intersection(ids):
        levels = around.levels_up_to(rule.topology, rule.required)
        domains = {
            tuple(around.labels_of(node).get(level) for level in levels)
            for node in map(around.node_of, ids)
            if node
        }
        if len(domains) > 1 or any(None in domain for domain in domains):
            yield f"{job.spec.name}: group {group.name or '(all)'} is not in one {rule.required}"
    for child in group.children:
        yield from _far_apart(job, child, new, around)


def _is_in(group: GroupView, leaf: str, *, is_root: bool = False) -> bool:
    if is_root or (not group.children and group.name == leaf):
        return True
    return any(_is_in(child, leaf) for child in group.children)
