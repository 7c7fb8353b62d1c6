"""Joins pods with their rows, their group, their project and its node pools into workloads.

A workload's view is rebuilt only when one of its inputs has changed; until then all snapshots
share it.
"""

from collections.abc import Container, Iterable, Mapping, Set

from msgspec import Struct
from msgspec.structs import replace

from extender.api.kinds import GpuPodGroup, Row
from extender.state.model import PodView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.pods.facts import PodFacts, is_held
from extender.state.tally import Tally
from extender.state.trees import is_below, without_succeeded
from extender.state.workloads.asked_labels import AskedLabels
from extender.state.workloads.assembly import RANK, Assembly, held
from extender.state.workloads.finished import Finished
from extender.state.workloads.members import Members, workload_key
from extender.state.workloads.own_groups import repeats_pods
from extender.state.workloads.staleness import Gangs
from extender.state.workloads.stated import ShortJob, runs, short_job
from extender.state.workloads.successors import can_succeed


class Unfinished(Struct, frozen=True):
    """A workload with a plan that was carried out in part; a leader finishes or frees it first.

    `held` are its pods with a reserved row that are not released yet. `is_partial`: it is a gang
    with rows for some pods, but for fewer than must run together.
    """

    workload: WorkloadView
    held: tuple[PodView, ...]
    is_partial: bool


class Workloads:
    """Every live pod that Ballast schedules, by UID and by workload."""

    def __init__(self, assembly: Assembly) -> None:
        self.facts: dict[str, PodFacts] = {}
        self.groups: dict[str, GpuPodGroup] = {}
        self.gangs = Gangs(self.groups)
        self._assembly = assembly
        self._members = Members(self.facts)
        self._finished = Finished()
        self._asked = AskedLabels()
        self._uid_of: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._views: dict[str, WorkloadView] = {}
        self._shared: dict[str, WorkloadView] | None = None
        self._pods: dict[str, PodView] = {}
        self._selectors: dict[str, Mapping[str, str]] = {}
        self._unfinished: dict[str, Unfinished] = {}
        self._short: dict[str, ShortJob] = {}
        self._tally = Tally()
        self._n_reshaped = 0
        self._n_changes = 0

    # -- changes -----------------------------------------------------------------------------

    def set_pod(self, facts: PodFacts) -> None:
        """Store the pod's facts; it joins its workload, or changes to another one."""
        before = self.facts.get(facts.uid)
        self.facts[facts.uid] = facts
        if before is None or before.group != facts.group:
            if before is not None:
                self._leave(facts.uid)
            if key := self._finished.give_way(facts):
                self._dirty.add(key)
            self._uid_of[workload_key(facts.namespace, facts.name)] = facts.uid
            self._dirty.update(self._members.join(facts))
        self._touch_labelled(self._asked.exchange(before, facts))
        self.touch_pod(facts.uid)

    def drop_pod(self, uid: str) -> None:
        """Forget the pod; does nothing if it is not known."""
        facts = self.facts.get(uid)
        if facts is None:
            return
        self.touch_pod(uid)
        self._leave(uid)
        del self.facts[uid]
        name = workload_key(facts.namespace, facts.name)
        if self._uid_of.get(name) == uid:
            del self._uid_of[name]
        self._touch_labelled(self._asked.exchange(facts, None))

    def set_group(self, group: GpuPodGroup) -> None:
        """Store the pod group; a change of its status alone rebuilds no view."""
        key = workload_key(group.metadata.namespace, group.metadata.name)
        before = self.groups.get(key)
        self.groups[key] = group
        if before is None or not _is_same_for_views(before, group):
            self._dirty.add(key)

    def drop_group(self, namespace: str, name: str) -> None:
        """Forget the pod group; its pods stay together by their label."""
        key = workload_key(namespace, name)
        self.groups.pop(key, None)
        self._dirty.add(key)

    def note_done(self, facts: PodFacts) -> None:
        """Count a pod of a group that succeeded; call this before it is dropped."""
        peers = self._members.of.get(workload_key(facts.namespace, facts.group), ())
        self._dirty.add(self._finished.add(facts, [self.facts[uid] for uid in peers]))

    def forget_done(self, uid: str) -> None:
        """A pod that may have succeeded is deleted from the API."""
        if key := self._finished.remove(uid):
            self._dirty.add(key)
            self._close_if_empty(key)

    def _leave(self, uid: str) -> None:
        """Remove the pod from its workload."""
        key = self._members.leave(uid)
        self._dirty.add(key)
        self._close_if_empty(key)

    def _close_if_empty(self, key: str) -> None:
        if not self._members.is_group(key):
            self._finished.close(key)

    def touch_pod(self, uid: str) -> None:
        """The pod's facts or rows have changed."""
        self._pods.pop(uid, None)
        if uid in self._members.key_of:
            self._dirty.add(self._members.key_of[uid])

    def touch_namespaces(self, namespaces: Iterable[str]) -> None:
        """The project or node pools of the namespaces' pods may have changed."""
        for namespace in namespaces:
            for key in self._members.by_namespace.get(namespace, ()):
                self._dirty.add(key)
                for uid in self._members.of[key]:
                    self._pods.pop(uid, None)

    def set_class_value(self, name: str, value: int | None) -> None:
        """Set the value of a priority class; None if it is deleted."""
        if self._assembly.set_class_value(name, value):
            self.touch_all()

    def set_job_size(self, job: ShortJob, n_pods: int | None) -> None:
        """Set how many pods the Job runs at once, at most the last known number while any of its
        pods runs; None: as its pods state."""
        sizes = self._assembly.job_sizes
        before = sizes.pop(job.uid, None)
        if n_pods is not None:
            if before is not None and any(
                runs(self.facts[uid]) for uid in self._members.of.get(job.key, ())
            ):
                n_pods = min(n_pods, before)
            sizes[job.uid] = n_pods
        if before != n_pods:
            self._dirty.add(job.key)

    def touch_all(self) -> None:
        """An input of all views has changed: node pools or topologies."""
        self.touch_namespaces(self._members.by_namespace)

    def _touch_labelled(self, keys: Set[str]) -> None:
        """Pods with these label keys show other labels. Costs one look at each pod's labels."""
        for uid, facts in self.facts.items() if keys else ():
            if any(key in keys for key, _ in facts.labels):
                self.touch_pod(uid)

    # -- questions ---------------------------------------------------------------------------

    @property
    def namespaces(self) -> Container[str]:
        """Namespaces with live pods that Ballast schedules."""
        return self._members.by_namespace

    @property
    def n_changes(self) -> int:
        """Goes up when a workload comes, goes, or changes in a field that decisions read."""
        self._refresh()
        return self._n_changes

    def uid_of(self, namespace: str, name: str) -> str:
        """UID of the live pod of this name; empty if there is none."""
        return self._uid_of.get(workload_key(namespace, name), "")

    def pod(self, uid: str) -> PodView | None:
        """The pod as it is now; None if Ballast does not schedule it or it is not live.

        Does not rebuild the workload, which may have thousands of pods: a change of the node labels
        that the project requires shows once that is done.
        """
        workload = self.workload_of(uid)
        return self._pod_in(workload.key, self.facts[uid]) if workload else None

    def workload_of(self, uid: str) -> WorkloadView | None:
        """The workload of the live pod, as of the last question about all workloads."""
        key = self._members.key_of.get(uid)
        if key is None:
            return None
        if key not in self._views:
            self._dirty.discard(key)
            self._make(key)
        return self._views[key]

    def pass_time(self, now_s: int) -> None:
        """Date the gangs that fell below their minimum since the last call."""
        self._refresh()
        for key, since in self.gangs.date(now_s).items():
            self._put(replace(self._views[key], stale_since=since))

    def tally_in(self, nodes: NodeTable, n_reshaped: int) -> Tally:
        """The sums over all pods, with the node pools in `nodes`. Callers must not change them.

        Node pools are compared with those of the last call only if `n_reshaped` differs.
        """
        self._refresh()
        if n_reshaped != self._n_reshaped:
            self._tally.follow(nodes, self._views)
            self._n_reshaped = n_reshaped
        return self._tally

    def successors(self, row: Row) -> list[PodView]:
        """Pending pods that could use the reservation in the row of a moved pod, oldest first."""
        self._refresh()
        found = [
            pod
            for key in self._tally.waiting
            if (view := self._views[key]).namespace == row.namespace and view.problem is None
            for pod in view.pods
            if pod.state == "gated" and pod.is_gated and can_succeed(row, self.facts[pod.uid], pod)
        ]
        return sorted(found, key=lambda pod: (-pod.order, pod.created_at, pod.name))

    def views(self) -> Mapping[str, WorkloadView]:
        """Every workload with a live pod, by key. Shared and constant."""
        self._refresh()
        if self._shared is None:
            self._shared = dict(self._views)
        return self._shared

    def unfinished(self) -> list[Unfinished]:
        """Workloads with a plan that was carried out only in part, by key."""
        self._refresh()
        return [self._unfinished[key] for key in sorted(self._unfinished)]

    def short_jobs(self) -> set[ShortJob]:
        """Jobs of gangs that have fewer live pods than the pods state."""
        self._refresh()
        return set(self._short.values())

    def place_of(self, uid: str) -> tuple[str, Row | None]:
        """The pod's node, current or planned, and its row there; ("", None) if it has neither."""
        return self._assembly.place_of(self.facts[uid])

    def validate(self) -> None:
        """Assert that membership and every cached view equal a rebuild."""
        self._refresh()
        self._members.validate()
        assert self._members.of.keys() == self._views.keys()
        assert self._pods.keys() == self.facts.keys()
        self._asked.validate(self.facts.values())
        cached, pods, unfinished = dict(self._views), dict(self._pods), dict(self._unfinished)
        n_changes = self._n_changes
        self.touch_all()
        self._refresh()
        assert (cached, pods, unfinished) == (self._views, self._pods, self._unfinished)
        assert n_changes == self._n_changes

    def validate_tally(self, nodes: NodeTable, n_reshaped: int) -> None:
        """Assert that the sums match all views."""
        have, want = self.tally_in(nodes, n_reshaped), Tally.of(nodes, self._views)
        assert have == want, f"{have} is not {want}"

    # -- making views ------------------------------------------------------------------------

    def _refresh(self) -> None:
        for key in self._dirty:
            self._make(key)
        self._dirty.clear()

    def _make(self, key: str) -> None:
        self._unfinished.pop(key, None)
        self._short.pop(key, None)
        uids = self._members.of.get(key)
        if not uids:
            self._shared = None
            before = self._views.pop(key, None)
            self._n_changes += before is not None
            self._tally.replace(before, None)
            self._selectors.pop(key, None)
            self.gangs.drop(key)
            return
        facts = sorted((self.facts[uid] for uid in uids), key=lambda fact: (fact.name, fact.uid))
        group = self.groups.get(key) if facts[0].group else None
        pods = self._pods_of(key, facts, self._assembly.node_labels_of(facts, group))
        if group is not None and is_held(group.metadata):
            pods = tuple(map(held, pods))
        view = self._assembly.workload(key, facts, group, pods)
        succeeded = self._finished.count(key, facts) if view.is_group else None
        n_succeeded = succeeded.total() if succeeded else 0
        if job := short_job(key, facts, group, n_succeeded, self._assembly.job_sizes):
            self._short[key] = job
        if succeeded:
            view = without_succeeded(view, succeeded)
        since = self.gangs.judge(view, is_ending=bool(succeeded))
        self._put(view if since is None else replace(view, stale_since=since))
        if left := _unfinished(view):
            self._unfinished[key] = left

    def _put(self, view: WorkloadView) -> None:
        self._shared = None
        before = self._views.get(view.key)
        self._n_changes += before is None or not _is_same_for_decisions(before, view)
        self._tally.replace(before, view)
        self._views[view.key] = view

    def _pods_of(
        self, key: str, facts: list[PodFacts], node_labels: Mapping[str, str]
    ) -> tuple[PodView, ...]:
        """The pods' views; `node_labels` are those that the project requires for this kind."""
        has_moved = self._selectors.get(key, {}) != node_labels
        if node_labels:
            self._selectors[key] = node_labels
        else:
            self._selectors.pop(key, None)
        if has_moved:
            for fact in facts:
                self._pods.pop(fact.uid, None)
        return tuple(self._pod_in(key, fact) for fact in facts)

    def _pod_in(self, key: str, fact: PodFacts) -> PodView:
        """The view of a pod of the workload, made if the pod has changed."""
        view = self._pods.get(fact.uid)
        if view is None:
            node_labels, labels = self._selectors.get(key, {}), self._asked.labels_of(fact)
            view = self._pods[fact.uid] = self._assembly.pod(fact, node_labels, labels)
        return view


def _unfinished(view: WorkloadView) -> Unfinished | None:
    """What is left to finish of the workload's plan, if anything.

    A gang that runs with fewer pods than its minimum, because others have ended, is not unfinished:
    it has neither enough live pods nor a pod to wait for.
    """
    held = tuple(pod for pod in view.pods if _awaits_release(pod))
    if not view.is_group:
        return Unfinished(view, held, is_partial=False) if held else None
    placed = [pod.group for pod in view.pods if pod.state in RANK]
    n_bound = sum(pod.state == "bound" for pod in view.pods)
    could_be_whole = n_bound == 0 or not _are_below(view, [pod.group for pod in view.pods])
    is_partial = _are_below(view, placed) and n_bound < len(view.pods) and could_be_whole
    return Unfinished(view, held, is_partial) if held or is_partial else None


def _awaits_release(pod: PodView) -> bool:
    return pod.state == "reserved" and not pod.is_released and not pod.is_direct


def _is_same_for_decisions(before: WorkloadView, after: WorkloadView) -> bool:
    """Whether nothing differs but resource versions, which only patches use."""
    if len(before.pods) != len(after.pods):
        return False
    are_alike = all(
        old is new or old == replace(new, resource_version=old.resource_version)
        for old, new in zip(before.pods, after.pods, strict=True)
    )
    return are_alike and before == replace(after, pods=before.pods)


def _is_same_for_views(before: GpuPodGroup, after: GpuPodGroup) -> bool:
    """Whether no field differs that a workload's view reads."""
    same = before.metadata.uid == after.metadata.uid and before.spec == after.spec
    is_as_held = is_held(before.metadata) == is_held(after.metadata)
    return same and is_as_held and repeats_pods(before) == repeats_pods(after)


def _are_below(view: WorkloadView, groups: list[str]) -> bool:
    return is_below(view.tree, view.min_member, groups)
