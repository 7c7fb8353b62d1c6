"""Departments, projects and node pools: their figures, and which pods and nodes belong to which.

`figures` reads the figures of queues, `node_pools` the policies of node pools. `problems()` reports
malformed figures, so a typing error never stops a queue.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import TypeVar

from extender.api.classes import class_refusal
from extender.api.kinds import GpuDepartment, GpuNodePool, GpuProject, PoolFigures
from extender.api.names import DEFAULT_POOL
from extender.api.reasons import Reason, Refused
from extender.state.figures import (
    of_department,
    read_quota,
    weigh_by_quota,
    with_budgets,
    with_past_use,
    without_effect,
)
from extender.state.model import (
    Amounts,
    Figures,
    PoolQuota,
    PoolView,
    QueueView,
    department_queue,
    max_grace_s,
)
from extender.state.node_pools import UNDESCRIBED, read_pool
from extender.state.pods.facts import PodFacts, unix_s
from extender.state.problems import Problem

V = TypeVar("V", QueueView, PoolView)

#: In place of figures that never were valid: the queue gets nothing until they are corrected.
_NO_FIGURES = PoolQuota(gpu=Figures(limit=0, weight=0))


class Queues:
    """The queue tree and the node pools. Returned maps never change afterwards."""

    def __init__(self) -> None:
        self.departments: dict[str, GpuDepartment] = {}
        self.projects: dict[str, GpuProject] = {}
        self.pools: dict[str, GpuNodePool] = {}
        self.department_views: Mapping[str, QueueView] = {}
        self.project_views: Mapping[str, QueueView] = {}
        self.pool_views: Mapping[str, PoolView] = {DEFAULT_POOL: UNDESCRIBED}
        #: Queue -> node pool -> decayed past use, in millionths of the pool's capacity.
        self.past_use: Mapping[str, Mapping[str, Amounts]] = {}
        #: Goes up with every change of a spec, or of the month's use in a project's status.
        self.n_changes = 0
        self._by_namespace: dict[str, tuple[str, ...]] = {}
        self._pools_for: dict[tuple[str, tuple[str, ...]], tuple[str, ...] | Refused] = {}
        self._bad_figures: dict[tuple[str, str], list[str]] = {}

    def set_department(self, department: GpuDepartment) -> None:
        """Store the department; a change of its status alone rebuilds no view."""
        name = department.metadata.name
        before = self.departments.get(name)
        self.departments[name] = department
        if before is not None and _has_same_spec(before, department):
            return
        self.n_changes += 1
        last = self.department_views.get(department_queue(name))
        pools = self._read_pools(("GpuDepartment", name), department.spec.node_pools, last)
        view = QueueView(
            name=department_queue(name),
            created_at=unix_s(department.metadata.creation_timestamp),
            pools={pool: of_department(figures) for pool, figures in pools.items()},
        )
        self.department_views = _with(self.department_views, view)

    def drop_department(self, name: str) -> None:
        """Forget the department; projects that name it get one of that name without quota."""
        self.n_changes += 1
        self.departments.pop(name, None)
        self._bad_figures.pop(("GpuDepartment", name), None)
        self.department_views = _without(self.department_views, department_queue(name))
        self._fill_departments()

    def set_project(self, project: GpuProject) -> set[str]:
        """Store the project; returns the namespaces with pods to refresh."""
        name = project.metadata.name
        before = self.projects.get(name)
        self.projects[name] = project
        if before is not None and _has_same_spec(before, project):
            if _month_uses(before) != _month_uses(project):
                self.n_changes += 1
                known = self.project_views[name]
                pools = with_budgets(known.pools, project.spec.node_pools, project.status)
                self.project_views = _with(self.project_views, replace(known, pools=pools))
            return set()
        self.n_changes += 1
        spec, last = project.spec, self.project_views.get(name)
        pools = self._read_pools(("GpuProject", name), spec.node_pools, last)
        view = QueueView(
            name=name,
            parent=department_queue(spec.department),
            created_at=unix_s(project.metadata.creation_timestamp),
            pools=with_budgets(pools, spec.node_pools, project.status),
            reclaim_min_runtime_s=spec.min_runtime.reclaim_seconds,
            preempt_min_runtime_s=spec.min_runtime.preempt_seconds,
            disruption_budget_s=spec.disruption_budget_seconds,
            max_grace_s=spec.max_termination_grace_seconds,
        )
        self.project_views = _with(self.project_views, view)
        self._pools_for.clear()
        self._fill_departments()
        return self._list_namespaces(name, before, project)

    def drop_project(self, name: str) -> set[str]:
        """Forget the project; returns the namespaces with pods to refresh."""
        self.n_changes += 1
        before = self.projects.pop(name, None)
        self._pools_for.clear()
        self._bad_figures.pop(("GpuProject", name), None)
        self.project_views = _without(self.project_views, name)
        self._fill_departments()
        return self._list_namespaces(name, before, None)

    def views(self) -> Mapping[str, QueueView]:
        """Every department and project, with the weights in force and with past use."""
        by_quota = {
            name for name, pool in self.pools.items() if pool.spec.over_quota_weights == "Disabled"
        }
        projects = self.project_views
        if by_quota:
            projects = {name: weigh_by_quota(view, by_quota) for name, view in projects.items()}
        views = {**self.department_views, **projects}
        for queue in self.past_use.keys() & views.keys():
            views[queue] = with_past_use(views[queue], self.past_use[queue])
        return views

    def set_pool(self, pool: GpuNodePool) -> bool:
        """Store the node pool; returns whether nodes and pods must be assigned to pools again."""
        name = pool.metadata.name
        before = self.pools.get(name)
        self.pools[name] = pool
        if before is not None and _has_same_spec(before, pool):
            return False
        self.n_changes += 1
        self.pool_views = _with(self.pool_views, read_pool(name, pool.spec))
        self._pools_for.clear()
        return before is None or before.spec.node_selector != pool.spec.node_selector

    @property
    def strict_pools(self) -> set[str]:
        """Node pools that evict pods of projects which hold GPUs without a row."""
        return {name for name, pool in self.pools.items() if pool.spec.unledgered_pods == "Evict"}

    def drop_pool(self, name: str) -> None:
        """Forget the node pool; its nodes go to other pools."""
        self.n_changes += 1
        self.pools.pop(name, None)
        self._pools_for.clear()
        self.pool_views = _without(self.pool_views, name)
        if name == DEFAULT_POOL:
            self.pool_views = _with(self.pool_views, UNDESCRIBED)

    def pool_of(self, labels: Mapping[str, str]) -> str:
        """The first pool by name with a matching selector; else the first without a selector."""
        catch_all = ""
        for name in sorted(self.pools):
            wanted = self.pools[name].spec.node_selector
            if not wanted:
                catch_all = catch_all or name
            elif all(labels.get(key) == value for key, value in wanted.items()):
                return name
        return catch_all or DEFAULT_POOL

    @property
    def listed_namespaces(self) -> Set[str]:
        """Namespaces that a project lists."""
        return self._by_namespace.keys()

    def project_of(self, namespace: str, named: str) -> str | Refused:
        """The project of pods in `namespace`; `named` is the project that they name, if any.

        A namespace belongs to the oldest project that lists it.
        """
        owner = self._owner_of(namespace)
        if not owner:
            detail = f"no project lists namespace {namespace}"
            return Refused(Reason.UNKNOWN_PROJECT, detail)
        if named and named != owner:
            detail = f"namespace {namespace} belongs to project {owner}, not to {named!r:.80}"
            return Refused(Reason.UNKNOWN_PROJECT, detail)
        return owner

    def refuse_class(
        self, project: str, priority_class: str, values: Mapping[str, int | None]
    ) -> Refused | None:
        """Why workloads of the project may not use the priority class, which may be empty."""
        if not priority_class or project not in self.projects:
            return None
        allowed = self.projects[project].spec.allowed_priority_classes
        why = class_refusal(priority_class, project, allowed, values)
        return Refused(Reason.PRIORITY_CLASS_NOT_ALLOWED, why) if why else None

    def is_managed(self, namespace: str) -> bool:
        """Whether any project lists the namespace."""
        return namespace in self._by_namespace

    def grace_s(self, pod: PodFacts, pool: str) -> int:
        """The grace period of a pod without a row, limited by its project or the node pool."""
        queue = self.project_views.get(self._owner_of(pod.namespace))
        return min(pod.grace_s, max_grace_s(queue, self.pool_views.get(pool)))

    def pools_for(self, project: str, asked: tuple[str, ...]) -> tuple[str, ...] | Refused:
        """Node pools that work of `project` may use, best first; `asked` are the ones it names."""
        found = self._pools_for.get((project, asked))
        if found is None:
            found = self._pools_for[project, asked] = self._find_pools(project, asked)
        return found

    def _find_pools(self, project: str, asked: tuple[str, ...]) -> tuple[str, ...] | Refused:
        if asked:
            unknown = [name for name in asked if name not in self.pool_views]
            if unknown:
                detail = f"node pool {unknown[0]!r} does not exist"
                return Refused(Reason.UNKNOWN_NODE_POOL, detail)
            return asked
        spec = self.projects[project].spec if project in self.projects else None
        stated: list[str] = []
        if spec is not None:
            stated = spec.default_node_pools or [figures.name for figures in spec.node_pools]
        if not stated:
            return tuple(self.pool_views)
        known = tuple(dict.fromkeys(name for name in stated if name in self.pool_views))
        if not known:
            detail = f"none of the node pools of project {project} exists: {', '.join(stated)}"
            return Refused(Reason.UNKNOWN_NODE_POOL, detail)
        return known

    def labels_for(self, project: str, kind: str) -> Mapping[str, str]:
        """Node labels that the project requires for workloads of this kind."""
        if project in self.projects:
            for selector in self.projects[project].spec.node_affinity:
                if selector.workload_kind == kind:
                    return selector.match_labels
        return {}

    def problems(self) -> Iterable[Problem]:
        """Invalid figures and references in departments and projects."""
        for (kind, name), texts in self._bad_figures.items():
            for text in texts:
                yield Problem(kind, name, "InvalidFigures", text)
        for name, project in self.projects.items():
            for namespace in project.spec.namespaces:
                if (owner := self._owner_of(namespace)) != name:
                    text = f"namespace {namespace} belongs to the older GpuProject {owner}"
                    text += ": remove it from one of the two lists"
                    yield Problem("GpuProject", name, "NamespaceTaken", text)
            department = project.spec.department
            if department not in self.departments:
                text = f"department {department} does not exist: it counts as one without quota"
                yield Problem("GpuProject", name, "UnknownReference", text)
            for pool in project.spec.default_node_pools:
                if pool not in self.pool_views:
                    text = f"default node pool {pool} does not exist: it is ignored"
                    yield Problem("GpuProject", name, "UnknownReference", text)
        yield from self._unknown_pools()

    def _unknown_pools(self) -> Iterable[Problem]:
        """Node pools without an object that departments and projects state figures for."""
        listed = ("GpuDepartment", self.departments), ("GpuProject", self.projects)
        for kind, queues in listed:
            for name, queue in queues.items():
                for pool in queue.spec.node_pools:
                    if pool.name not in self.pool_views:
                        text = f"node pool {pool.name} does not exist: its figures have no effect"
                        yield Problem(kind, name, "UnknownReference", text)

    def _read_pools(
        self, owner: tuple[str, str], listed: list[PoolFigures], last: QueueView | None
    ) -> dict[str, PoolQuota]:
        problems: list[str] = []
        quotas: dict[str, PoolQuota] = {}
        for figures in listed:
            if figures.name in quotas:
                problems.append(f"node pool {figures.name} is listed twice: the first counts")
                continue
            known = last.pools.get(figures.name, _NO_FIGURES) if last else _NO_FIGURES
            quotas[figures.name], refused = read_quota(figures, known)
            if owner[0] == "GpuDepartment":
                refused += without_effect(figures)
            problems += [f"node pool {figures.name}: {text}" for text in refused]
        if problems:
            self._bad_figures[owner] = problems
        else:
            self._bad_figures.pop(owner, None)
        return quotas

    def _fill_departments(self) -> None:
        """Add a department without quota for each department that projects name and none has."""
        wanted = {department_queue(p.spec.department) for p in self.projects.values()}
        exist = {department_queue(name) for name in self.departments}
        views = {n: v for n, v in self.department_views.items() if n in exist}
        for name in wanted - views.keys():
            views[name] = QueueView(name)
        self.department_views = dict(sorted(views.items()))

    def _owner_of(self, namespace: str) -> str:
        """The oldest project that lists the namespace; the first by name if equally old."""
        listed = self._by_namespace.get(namespace, ())
        if len(listed) < 2:
            return listed[0] if listed else ""
        return min(listed, key=lambda name: (self.project_views[name].created_at, name))

    def _list_namespaces(
        self, name: str, before: GpuProject | None, after: GpuProject | None
    ) -> set[str]:
        old = set(before.spec.namespaces) if before else set()
        new = set(after.spec.namespaces) if after else set()
        for namespace in old - new:
            left = tuple(n for n in self._by_namespace[namespace] if n != name)
            if left:
                self._by_namespace[namespace] = left
            else:
                del self._by_namespace[namespace]
        for namespace in new - old:
            listed = {*self._by_namespace.get(namespace, ()), name}
            self._by_namespace[namespace] = tuple(sorted(listed))
        return old | new


def _has_same_spec(
    before: GpuDepartment | GpuProject | GpuNodePool,
    after: GpuDepartment | GpuProject | GpuNodePool,
) -> bool:
    """Whether they are the same object with the same spec; status and metadata may differ."""
    return before.metadata.uid == after.metadata.uid and before.spec == after.spec


def _month_uses(project: GpuProject) -> list[object]:
    """The month's use by node pool, from the project's status."""
    return [(use.name, use.month) for use in project.status.node_pools]


def _with(views: Mapping[str, V], view: V) -> dict[str, V]:
    """The views with `view` added or replaced, in order of their names."""
    return dict(sorted({**views, view.name: view}.items()))


def _without(views: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: view for key, view in views.items() if key != name}
