"""Builds a workload's view from its pods, their rows, its group, project and topologies."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from extender.api import names
from extender.api.kinds import GpuPodGroup, GpuPodGroupSpec, Row, TopologyConstraint
from extender.api.reasons import Reason, Refused
from extender.state.budgets import BudgetIndex
from extender.state.model import GroupView, Labels, PodState, PodView, TopologyRule, WorkloadView
from extender.state.nodes import RowIndex
from extender.state.pods.claims import VolumeView, judge_volumes
from extender.state.pods.constraints import share
from extender.state.pods.facts import PodFacts, unix_s
from extender.state.queues import Queues
from extender.state.refusals import Denial
from extender.state.topologies import Topologies
from extender.state.trees import collapsed, leaves_of, tree_of
from extender.state.workloads.own_groups import is_for
from extender.state.workloads.stated import spec_of

#: If an unbound pod has several rows, the one of the highest rank counts.
RANK: Final = {"nominated": 0, "reserved": 1, "bound": 2}

#: Values in a GpuPodGroup -> the values of the pods' label.
PREEMPTIBILITIES: Final = {
    "": "",
    "Preemptible": names.PREEMPTIBLE,
    "NonPreemptible": names.NON_PREEMPTIBLE,
}

Listed = Sequence[PodFacts]


class Assembly:
    """Joins what is known into views."""

    def __init__(
        self, rows: RowIndex, queues: Queues, topologies: Topologies, budgets: BudgetIndex
    ) -> None:
        self._rows = rows
        self._queues = queues
        self._topologies = topologies
        self.volumes: dict[str, VolumeView] = {}
        self.denials: dict[str, Denial] = {}
        self.job_sizes: dict[str, int] = {}
        self._budgets = budgets
        self.class_values: dict[str, int | None] = dict(names.CLASS_VALUES)

    def set_class_value(self, name: str, value: int | None) -> bool:
        """Set the value of a priority class, None if it is deleted; returns whether it is new."""
        values = {**self.class_values, name: names.CLASS_VALUES.get(name)}
        if value is not None:
            values[name] = value
        is_new = values.get(name) != self.class_values.get(name)
        self.class_values = values
        return is_new

    def place_of(self, facts: PodFacts) -> tuple[str, Row | None]:
        """The pod's node, current or planned, and its row there; ("", None) if it has neither."""
        rows = self._rows.held_of(facts.uid)
        if facts.node:
            return facts.node, rows.get(facts.node)
        if facts.revoked:
            rows = {on: row for on, row in rows.items() if not is_revoked(facts, on, row)}
        if not rows:
            return "", None
        if len(rows) == 1:
            return next(iter(rows.items()))
        return max(rows.items(), key=lambda held: (RANK[held[1].state], held[1].epoch, held[0]))

    def node_labels_of(self, facts: Listed, group: GpuPodGroup | None) -> Mapping[str, str]:
        """The node labels that the pods' project requires for their kind of workload."""
        project = self._project_of(facts, group)
        name = "" if isinstance(project, Refused) else project
        return self._queues.labels_for(name, _kind_of(facts))

    def workload(
        self, key: str, facts: Listed, group: GpuPodGroup | None, pods: tuple[PodView, ...]
    ) -> WorkloadView:
        """The view of the workload with this key; `facts` and `pods` are in the same order."""
        first = facts[0]
        project, pools, problem = self._project_and_pools(facts, group)
        spec = spec_of(facts, group, self.job_sizes)
        tree = self._tree_of(facts, spec)
        if isinstance(tree, Refused):
            problem, tree = problem or tree, None
        users = sorted({fact.user for fact in facts if fact.user})
        unmet, doubt = self._claims_of(facts)
        return WorkloadView(
            key=key,
            namespace=first.namespace,
            name=first.group or first.name,
            is_group=bool(first.group),
            project=project,
            kind=_kind_of(facts),
            priority=self._priority_of(facts, group, project),
            is_preemptible=self._is_preemptible(facts, group, project),
            min_member=tree.min_member if tree else spec.min_member,
            pools=pools,
            created_at=_created_at(facts, group),
            pods=pods,
            max_concurrent_pods=spec.max_concurrent_pods,
            expected_run_s=spec.expected_run_seconds or _run_of(facts),
            user=users[0] if users else "",
            tree=tree,
            preemption_delay_s=spec.preemption_delay_seconds,
            never_preempts=any(fact.never_preempts for fact in facts),
            waits_since=min((fact.created_at for fact in facts if _waits(fact)), default=0),
            stale_grace_s=_grace_of(spec) if first.group else None,
            weight=spec.weight or max(fact.stated.weight for fact in facts) or 1,
            replica=max(facts, key=_youngest_replica).replica,
            unknown_class=self._unknown_class(group),
            problem=problem or _disagreement(users) or unmet,
            doubt=self._denial_of(facts) or _refusal_of(facts) or doubt,
        )

    def pod(self, facts: PodFacts, node_labels: Mapping[str, str], labels: Labels) -> PodView:
        """The view of one pod; `labels` are those that (anti-)affinity of pods selects by."""
        node, row = self.place_of(facts)
        next_node, next_row = self._next_of(facts)
        constraints = facts.constraints
        if node_labels:
            selector = tuple(sorted({**dict(constraints.node_selector), **node_labels}.items()))
            constraints = share(structs.replace(constraints, node_selector=selector))
        unmet, doubts = None, facts.doubts
        if facts.claims:
            unmet, unsure, affinities = judge_volumes(
                "", facts.claims, self.volumes, facts.namespace
            )
            doubts = doubts or unsure
            constraints = share(structs.replace(constraints, volumes=affinities))
        state = _state_of(facts, row)
        view = PodView(
            uid=facts.uid,
            namespace=facts.namespace,
            name=facts.name,
            group=facts.sub_group if facts.group else "",
            labels=labels,
            budgets=self._budgets.binding(facts),
            resource_version=facts.resource_version,
            demand=facts.demand,
            state=state,
            is_gated=facts.is_gated,
            is_released=row is not None and facts.plan == row.plan_on(node),
            is_direct=facts.is_direct,
            other_gates=facts.other_gates,
            is_terminating=facts.is_terminating,
            is_controlled=facts.is_controlled,
            is_of_job=facts.is_of_job,
            stays=bool(facts.node and (doubts or unmet)),
            awaits_volume=self._awaits_volume(facts),
            refusals=facts.refusals,
            answer=facts.answer,
            denial=self.denials.get(facts.uid),
            node=node,
            cards=tuple(row.cards) if row else (),
            next_node=next_node,
            next_cards=tuple(next_row.cards) if next_row else (),
            epoch=row.epoch if row else 0,
            compute_request_milli=facts.stated.compute_request_milli,
            compute_limit_milli=facts.stated.compute_limit_milli,
            priority=facts.priority,
            created_at=facts.created_at,
            started_at=facts.started_at,
            checkpoint_s=facts.stated.checkpoint_s,
            grace_s=facts.grace_s,
            ends_by=facts.ends_by,
            restart_policy=facts.restart_policy,
            constraints=constraints,
        )
        return held(view) if facts.is_held else view

    def _awaits_volume(self, facts: PodFacts) -> bool:
        views = (self.volumes.get(f"{facts.namespace}/{claim}") for claim in facts.claims)
        return any(view is not None and view.is_open for view in views)

    def _denial_of(self, facts: Listed) -> Refused | None:
        denials = (self.denials.get(fact.uid) for fact in facts if not fact.node)
        denial = next(filter(None, denials), None)
        return Refused(Reason.RELEASE_REFUSED, denial.message) if denial else None

    def _claims_of(self, facts: Listed) -> tuple[Refused | None, Refused | None]:
        """Why pending pods can't run on any node, and why kube-scheduler may refuse a placement."""
        doubt: Refused | None = None
        for fact in facts:
            if fact.node or not (fact.claims or fact.doubts):
                continue
            unmet, doubts, _ = judge_volumes(fact.key, fact.claims, self.volumes, fact.namespace)
            if unmet is not None:
                return unmet, None
            doubtful = ", ".join(filter(None, (fact.doubts, doubts)))
            if doubtful and doubt is None:
                detail = f"{fact.key}: nothing is evicted for a pod with {doubtful}"
                doubt = Refused(Reason.CLAIMS_NOT_MET, detail)
        return None, doubt

    def _next_of(self, facts: PodFacts) -> tuple[str, Row | None]:
        """Where cards are reserved for the pod's successor, if the pod is moved."""
        if facts.node and facts.is_terminating:
            for node, row in self._rows.held_of(facts.uid).items():
                if row.move is not None and node != facts.node:
                    return node, row
        return "", None

    def _project_and_pools(
        self, facts: Listed, group: GpuPodGroup | None
    ) -> tuple[str, tuple[str, ...], Refused | None]:
        """The workload's project and node pools, and why it can't be placed, if it can't."""
        project = self._project_of(facts, group)
        name = self._charged_to(facts[0].namespace) if isinstance(project, Refused) else project
        asked = tuple(group.spec.node_pools) if group else ()
        asked = asked or next((fact.pools for fact in facts if fact.pools), ())
        pools = self._queues.pools_for(name, asked)
        problem = next((fact.problem for fact in facts if fact.problem), None)
        for outcome in (project, self._refuse_classes(facts, group, name), pools):
            if problem is None and isinstance(outcome, Refused):
                problem = outcome
        return name, () if isinstance(pools, Refused) else pools, problem

    def _project_of(self, facts: Listed, group: GpuPodGroup | None) -> str | Refused:
        """The project of the namespace, unless the group names another.

        Labels of pods do not count. Admission set or checked them when the pods were created; they
        can't change, but the namespace may have moved to another project since.
        """
        return self.project_of(facts[0].namespace, group.spec.project if group else "")

    def project_of(self, namespace: str, named: str) -> str | Refused:
        """The project of the namespace, or why its workloads may not name the project `named`."""
        return self._queues.project_of(namespace, named)

    def _charged_to(self, namespace: str) -> str:
        """The project charged for a workload if its own choice is refused; empty if there is none.

        Running pods are charged to the project of their namespace, whatever label or group says.
        """
        found = self.project_of(namespace, "")
        return "" if isinstance(found, Refused) else found

    def _tree_of(self, facts: Listed, spec: GpuPodGroupSpec) -> GroupView | Refused | None:
        """The tree of groups, None without sub-groups and topology constraint, or what is wrong."""
        nearness = spec.topology_constraint
        nearness = nearness or next((fact.nearness for fact in facts if fact.nearness), None)
        if not spec.sub_groups and nearness is None:
            return None
        rule = self._rule_of(nearness)
        if isinstance(rule, Refused):
            return rule
        rules: dict[str, TopologyRule] = {}
        for sub_group in spec.sub_groups:
            found = self._rule_of(sub_group.topology_constraint)
            if isinstance(found, Refused):
                return found
            if found is not None:
                rules[sub_group.name] = found
        tree = tree_of(spec, rule, rules)
        if isinstance(tree, Refused) or not tree.children:
            return tree
        strangers = {fact.sub_group for fact in facts} - {"", *leaves_of(tree)}
        if strangers:
            detail = f"its pods name sub-groups that hold no pods: {', '.join(sorted(strangers))}"
            return Refused(Reason.INVALID_REQUEST, detail)
        return collapsed(tree) if all(fact.sub_group for fact in facts) else tree

    def _rule_of(self, asked: TopologyConstraint | None) -> TopologyRule | Refused | None:
        return self._topologies.rule_of(asked) if asked else None

    def _unknown_class(self, group: GpuPodGroup | None) -> str:
        name = group.spec.priority_class_name if group else ""
        return name if self.class_values.get(name) is None else ""

    def _class_value(self, group: GpuPodGroup | None, project: str) -> int | None:
        """The priority of the group's priority class, if known and allowed by the project."""
        name = group.spec.priority_class_name if group else ""
        if self._queues.refuse_class(project, name, self.class_values):
            return None
        return self.class_values.get(name)

    def _refuse_classes(
        self, facts: Listed, group: GpuPodGroup | None, project: str
    ) -> Refused | None:
        """Why the project forbids a priority class of the group or of an unbound pod."""
        named = {group.spec.priority_class_name} if group else set()
        named |= {fact.priority_class for fact in facts if not fact.node}
        refusals = (
            self._queues.refuse_class(project, name, self.class_values) for name in sorted(named)
        )
        return next((refused for refused in refusals if refused), None)

    def _priority_of(self, facts: Listed, group: GpuPodGroup | None, project: str) -> int:
        stated = self._class_value(group, project)
        return max(fact.priority for fact in facts) if stated is None else stated

    def _is_preemptible(self, facts: Listed, group: GpuPodGroup | None, project: str) -> bool:
        stated = self._class_value(group, project)
        word = PREEMPTIBILITIES[group.spec.preemptibility] if group else ""
        if any(fact.replica for fact in facts):
            word = word or names.PREEMPTIBLE
        return all(
            names.is_preemptible(
                fact.priority if stated is None else stated, word or fact.preemptibility
            )
            for fact in facts
        )


def held(pod: PodView) -> PodView:
    """The pod with one more gate while its owner holds it back, unless it was released."""
    if not pod.is_gated or pod.state not in ("gated", "nominated"):
        return pod
    if names.ANNOTATION_HOLD in pod.other_gates:
        return pod
    return structs.replace(pod, other_gates=(*pod.other_gates, names.ANNOTATION_HOLD))


def _kind_of(facts: Listed) -> str:
    """The first known workload kind that a pod states; the default kind if none does."""
    return next((fact.kind for fact in facts if fact.kind in names.KINDS), names.KINDS[0])


def _waits(facts: PodFacts) -> bool:
    return not facts.node and not facts.is_terminating


def _refusal_of(facts: Listed) -> Refused | None:
    """Why kube-scheduler may refuse to bind pending pods of the workload."""
    for fact in facts:
        if not fact.node and fact.refusals.is_doubtful:
            detail = f"{fact.key}: refused {fact.refusals.count} times"
            detail = f"{detail}: {fact.refusals.why}" if fact.refusals.why else detail
            return Refused(Reason.PLACEMENT_REFUSED, detail)
    return None


def _run_of(facts: Listed) -> int | None:
    """Seconds that the workload will run, from its pods; None unless each pod states it."""
    runs = [fact.stated.run_s for fact in facts]
    return max((run_s for run_s in runs if run_s is not None), default=None) if all(runs) else None


def _youngest_replica(facts: PodFacts) -> tuple[bool, int, int]:
    floor = facts.replica.floor if facts.replica else 0
    return facts.replica is not None, facts.created_at, floor


def _grace_of(spec: GpuPodGroupSpec) -> int | None:
    return None if spec.staleness_grace_seconds < 0 else spec.staleness_grace_seconds


def is_revoked(facts: PodFacts, node: str, row: Row) -> bool:
    """Whether no release or Binding of the unbound pod can use its row on the node any more."""
    is_named = row.revocation_on(node) == facts.revoked
    return is_named and facts.plan != row.plan_on(node)


def _disagreement(users: Sequence[str]) -> Refused | None:
    """Why the workload can't be placed if its pods name several users."""
    if len(users) < 2:
        return None
    return Refused(Reason.INVALID_REQUEST, f"pods of one group name users {', '.join(users)}")


def _created_at(facts: Listed, group: GpuPodGroup | None) -> int:
    """When the workload was created. A group that the controller made counts only for pods of the
    owners it was made for: another gang of that name starts with its own age."""
    created = [fact.created_at for fact in facts if fact.created_at]
    if group is not None and group.metadata.creation_timestamp and is_for(group, facts):
        created.append(unix_s(group.metadata.creation_timestamp))
    return min(created, default=0)


def _state_of(facts: PodFacts, row: Row | None) -> PodState:
    if facts.node:
        return "bound"
    if row is not None:
        return row.state
    # The plan of a pod without a row is revoked before the pod is planned again.
    return "foreign" if facts.is_direct or facts.plan else "gated"
