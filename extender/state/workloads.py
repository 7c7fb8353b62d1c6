"""Pods joined into workloads: with their rows, their group, their project and its node pools.

A workload's view is made again only when something it is made of has changed; until then every
snapshot shares it.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from extender.api import names
from extender.api.kinds import PodGroup, Row
from extender.api.reasons import Reason, Refused
from extender.state.model import PodState, PodView, WorkloadView
from extender.state.nodes import RowIndex
from extender.state.pods import PodFacts, share, unix_s
from extender.state.queues import Queues

_RANK = {"nominated": 0, "reserved": 1, "bound": 2}


class Unfinished(Struct, frozen=True):
    """A workload that a plan has left half way: a leader finishes or frees it before all else.

    `held` are its pods with a reserved row that our gate still holds. `is_partial`: it is a gang of
    which some pods have rows, but fewer than must run together.
    """

    workload: WorkloadView
    held: tuple[PodView, ...]
    is_partial: bool


class Workloads:
    """Every live pod that matters, by UID and by workload."""

    def __init__(self, rows: RowIndex, queues: Queues) -> None:
        self.facts: dict[str, PodFacts] = {}
        self.groups: dict[str, PodGroup] = {}
        self._class_values: dict[str, int | None] = dict(names.PRIORITY_CLASSES)
        self._rows = rows
        self._queues = queues
        self._uid_of: dict[str, str] = {}
        self._key_of: dict[str, str] = {}
        self._members: dict[str, set[str]] = {}
        self._by_namespace: dict[str, set[str]] = {}
        self._dirty: set[str] = set()
        self._views: dict[str, WorkloadView] = {}
        self._shared: dict[str, WorkloadView] | None = None
        self._pods: dict[str, PodView] = {}
        self._selectors: dict[str, Mapping[str, str]] = {}
        self._unfinished: dict[str, Unfinished] = {}

    # -- changes -----------------------------------------------------------------------------

    def set_pod(self, facts: PodFacts) -> None:
        """Take the pod's facts; it joins its workload, or moves to another one."""
        before = self.facts.get(facts.uid)
        self.facts[facts.uid] = facts
        if before is None or before.group != facts.group:
            if before is not None:
                self._leave(facts.uid)
            self._uid_of[f"{facts.namespace}/{facts.name}"] = facts.uid
            self._join(facts)
        self.touch_pod(facts.uid)

    def drop_pod(self, uid: str) -> None:
        """Forget the pod; nothing happens when it is not known."""
        facts = self.facts.get(uid)
        if facts is None:
            return
        self.touch_pod(uid)
        self._leave(uid)
        del self.facts[uid]
        name = f"{facts.namespace}/{facts.name}"
        if self._uid_of.get(name) == uid:
            del self._uid_of[name]

    def set_group(self, group: PodGroup) -> None:
        """Take the pod group; a change of its status alone makes nothing anew."""
        key = _key(group.metadata.namespace, group.metadata.name)
        before = self.groups.get(key)
        self.groups[key] = group
        same = before is not None and before.metadata.uid == group.metadata.uid
        if before is None or not same or before.spec != group.spec:
            self._dirty.add(key)

    def drop_group(self, namespace: str, name: str) -> None:
        """Forget the pod group; its pods stay together by their label."""
        self.groups.pop(_key(namespace, name), None)
        self._dirty.add(_key(namespace, name))

    def set_class_value(self, name: str, value: int | None) -> None:
        """Take the value of a priority class; None when the class is gone."""
        values = {**self._class_values, name: names.PRIORITY_CLASSES.get(name)}
        if value is not None:
            values[name] = value
        if values.get(name) != self._class_values.get(name):
            self._class_values = values
            self.touch_all()

    def touch_pod(self, uid: str) -> None:
        """The pod's facts or rows have changed."""
        self._pods.pop(uid, None)
        if uid in self._key_of:
            self._dirty.add(self._key_of[uid])

    def touch_namespaces(self, namespaces: Iterable[str]) -> None:
        """What the namespaces' pods belong to may have changed."""
        for namespace in namespaces:
            for key in self._by_namespace.get(namespace, ()):
                self._dirty.add(key)
                for uid in self._members[key]:
                    self._pods.pop(uid, None)

    def touch_all(self) -> None:
        """The node pools or the values of priority classes have changed."""
        self.touch_namespaces(self._by_namespace)

    # -- questions ---------------------------------------------------------------------------

    def uid_of(self, namespace: str, name: str) -> str:
        """UID of the live pod of this name, empty when none is known."""
        return self._uid_of.get(f"{namespace}/{name}", "")

    def pod(self, uid: str) -> PodView | None:
        """The pod as it is now; None when it is not live or does not matter."""
        key = self._key_of.get(uid)
        if key is None:
            return None
        if key in self._dirty:
            self._dirty.discard(key)
            self._make(key)
        return self._pods[uid]

    def views(self) -> Mapping[str, WorkloadView]:
        """Every workload with a live pod, by key. Shared: not to be changed, and never changes."""
        self._refresh()
        if self._shared is None:
            self._shared = dict(self._views)
        return self._shared

    def unfinished(self) -> list[Unfinished]:
        """Workloads half way through a plan, by key."""
        self._refresh()
        return [self._unfinished[key] for key in sorted(self._unfinished)]

    def place_of(self, uid: str) -> tuple[str, Row | None]:
        """Where the pod is or is meant to be, and the row that says so ("" and None: nowhere)."""
        facts = self.facts[uid]
        rows = self._rows.held_of(uid)
        if facts.node:
            return facts.node, rows.get(facts.node)
        if not rows:
            return "", None
        if len(rows) == 1:
            return next(iter(rows.items()))
        return max(rows.items(), key=lambda held: (_RANK[held[1].state], held[1].epoch, held[0]))

    def validate(self) -> None:
        """Assert that membership and every cached view is what making it anew gives."""
        self._refresh()
        assert self._key_of.keys() == self.facts.keys()
        assert {uid for uids in self._members.values() for uid in uids} == self.facts.keys()
        for key, uids in self._members.items():
            assert uids, f"{key} has no members"
            assert all(self._key_of[uid] == key for uid in uids), key
            groups = {self.facts[uid].group for uid in uids}
            assert len(groups) == 1, f"{key} mixes {groups}"
            assert len(uids) == 1 or "" not in groups, f"{key} joins pods without a group"
        assert self._members.keys() == self._views.keys()
        assert self._pods.keys() == self.facts.keys()
        assert {key for keys in self._by_namespace.values() for key in keys} == self._views.keys()
        cached, pods, unfinished = dict(self._views), dict(self._pods), dict(self._unfinished)
        self.touch_all()
        self._refresh()
        assert (cached, pods, unfinished) == (self._views, self._pods, self._unfinished)

    # -- joining -----------------------------------------------------------------------------

    def _join(self, facts: PodFacts) -> None:
        key = _key(facts.namespace, facts.group or facts.name)
        if facts.group:
            self._give_way(key)
        elif self._is_group(key):
            key = _lone_key(key)
        self._key_of[facts.uid] = key
        self._members.setdefault(key, set()).add(facts.uid)
        self._by_namespace.setdefault(facts.namespace, set()).add(key)

    def _leave(self, uid: str) -> None:
        key = self._key_of.pop(uid)
        members = self._members[key]
        members.discard(uid)
        self._dirty.add(key)
        if not members:
            del self._members[key]
            namespace = key.partition("/")[0]
            self._by_namespace[namespace].discard(key)
            if not self._by_namespace[namespace]:
                del self._by_namespace[namespace]

    def _is_group(self, key: str) -> bool:
        return any(self.facts[uid].group for uid in self._members.get(key, ()))

    def _give_way(self, key: str) -> None:
        """Move a single pod that has the key of a group which appears now to a key of its own."""
        for uid in [uid for uid in self._members.get(key, ()) if not self.facts[uid].group]:
            self._leave(uid)
            lone = _lone_key(key)
            self._key_of[uid] = lone
            self._members[lone] = {uid}
            self._by_namespace.setdefault(key.partition("/")[0], set()).add(lone)
            self._dirty.add(lone)

    # -- making views ------------------------------------------------------------------------

    def _refresh(self) -> None:
        for key in self._dirty:
            self._make(key)
        self._dirty.clear()

    def _make(self, key: str) -> None:
        self._shared = None
        self._unfinished.pop(key, None)
        uids = self._members.get(key)
        if not uids:
            self._views.pop(key, None)
            self._selectors.pop(key, None)
            return
        facts = sorted((self.facts[uid] for uid in uids), key=lambda fact: (fact.name, fact.uid))
        first = facts[0]
        group = self.groups.get(key) if first.group else None
        kind = next((fact.kind for fact in facts if fact.kind in names.KINDS), names.KINDS[0])
        project, pools, problem = self._rights_of(facts, group)
        view = WorkloadView(
            key=key,
            namespace=first.namespace,
            name=first.group or first.name,
            is_group=bool(first.group),
            project=project,
            kind=kind,
            priority=self._priority_of(facts, group),
            is_preemptible=self._is_preemptible(facts, group),
            min_member=_min_member_of(facts, group),
            pools=pools,
            created_at=_created_at(facts, group),
            pods=self._pods_of(key, facts, self._queues.labels_for(project, kind)),
            max_concurrent_pods=group.spec.max_concurrent_pods if group else None,
            expected_run_s=group.spec.expected_run_seconds if group else None,
            problem=problem,
        )
        self._views[key] = view
        if left := _unfinished(view):
            self._unfinished[key] = left

    def _rights_of(
        self, facts: list[PodFacts], group: PodGroup | None
    ) -> tuple[str, tuple[str, ...], Refused | None]:
        """The workload's project and node pools, and why it can't be placed, if it can't."""
        project = self._project_of(facts, group)
        name = "" if isinstance(project, Refused) else project
        asked = tuple(group.spec.node_pools) if group else ()
        asked = asked or next((fact.pools for fact in facts if fact.pools), ())
        pools = self._queues.pools_for(name, asked)
        problem = next((fact.problem for fact in facts if fact.problem), None)
        for outcome in (project, pools):
            if problem is None and isinstance(outcome, Refused):
                problem = outcome
        return name, () if isinstance(pools, Refused) else pools, problem

    def _pods_of(
        self, key: str, facts: list[PodFacts], node_labels: Mapping[str, str]
    ) -> tuple[PodView, ...]:
        """The pods' views; `node_labels` is what the project demands of nodes for this kind."""
        has_moved = self._selectors.get(key, {}) != node_labels
        if node_labels:
            self._selectors[key] = node_labels
        else:
            self._selectors.pop(key, None)
        for fact in facts:
            if has_moved or fact.uid not in self._pods:
                self._pods[fact.uid] = self._make_pod(fact, node_labels)
        return tuple(self._pods[fact.uid] for fact in facts)

    def _make_pod(self, facts: PodFacts, node_labels: Mapping[str, str]) -> PodView:
        node, row = self.place_of(facts.uid)
        constraints = facts.constraints
        if node_labels:
            selector = tuple(sorted({**dict(constraints.node_selector), **node_labels}.items()))
            constraints = share(msgspec.structs.replace(constraints, node_selector=selector))
        return PodView(
            uid=facts.uid,
            namespace=facts.namespace,
            name=facts.name,
            resource_version=facts.resource_version,
            demand=facts.demand,
            state=_state_of(facts, row),
            is_gated=facts.is_gated,
            other_gates=facts.other_gates,
            is_terminating=facts.is_terminating,
            is_controlled=facts.is_controlled,
            node=node,
            cards=tuple(row.cards) if row else (),
            epoch=row.epoch if row else 0,
            compute_request_milli=facts.compute_request_milli,
            compute_limit_milli=facts.compute_limit_milli,
            priority=facts.priority,
            created_at=facts.created_at,
            started_at=facts.started_at,
            constraints=constraints,
        )

    def _project_of(self, facts: list[PodFacts], group: PodGroup | None) -> str | Refused:
        namespace = facts[0].namespace
        named = {group.spec.project} if group and group.spec.project else set()
        named = named or {fact.project for fact in facts if fact.project}
        if len(named) > 1:
            detail = f"pods of one group name projects {', '.join(sorted(named))}"
            return Refused(Reason.UNKNOWN_PROJECT, detail)
        return self._queues.project_of(namespace, next(iter(named), ""))

    def _class_value(self, group: PodGroup | None) -> int | None:
        """The priority that the group states by a class we know."""
        return self._class_values.get(group.spec.priority_class_name) if group else None

    def _priority_of(self, facts: list[PodFacts], group: PodGroup | None) -> int:
        stated = self._class_value(group)
        return max(fact.priority for fact in facts) if stated is None else stated

    def _is_preemptible(self, facts: list[PodFacts], group: PodGroup | None) -> bool:
        stated = self._class_value(group)
        word = group.spec.preemptibility if group else ""
        return all(
            names.is_preemptible(
                fact.priority if stated is None else stated, word or fact.preemptibility
            )
            for fact in facts
        )


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _lone_key(key: str) -> str:
    """The key of a single pod whose name is also a group's; no object's name has a `#`."""
    return f"{key}#pod"


def _min_member_of(facts: list[PodFacts], group: PodGroup | None) -> int:
    if group is not None:
        return group.spec.min_member
    return max(1, *(fact.min_member for fact in facts)) if facts[0].group else 1


def _created_at(facts: list[PodFacts], group: PodGroup | None) -> int:
    created = [fact.created_at for fact in facts if fact.created_at]
    if group is not None and group.metadata.creation_timestamp is not None:
        created.append(unix_s(group.metadata.creation_timestamp))
    return min(created, default=0)


def _state_of(facts: PodFacts, row: Row | None) -> PodState:
    if facts.node:
        return "bound"
    if row is not None:
        return row.state
    return "gated" if facts.is_gated else "foreign"


def _unfinished(view: WorkloadView) -> Unfinished | None:
    """What a plan left half way.

    A gang that runs with fewer pods than it must have, because others have ended, is not: it has
    neither enough live pods nor a pod to wait for.
    """
    states = [pod.state for pod in view.pods]
    held = tuple(pod for pod in view.pods if pod.state == "reserved" and pod.is_gated)
    n_placed = sum(state in _RANK for state in states)
    n_bound = states.count("bound")
    could_be_whole = len(states) >= view.min_member or n_bound == 0
    is_partial = (
        view.is_group
        and 0 < n_placed < view.min_member
        and n_bound < len(states)
        and could_be_whole
    )
    return Unfinished(view, held, is_partial) if held or is_partial else None
