"""However events arrive, the model is the fold of what the API holds.

An API of a few objects is changed at random. Every kind has its own stream of events, in order; the
streams reach the model in any order between them, with repeats. After every step the model's own
invariants hold; once all is delivered it equals a model that was given the final objects at once,
and before them the pods that had succeeded, which a group remembers.
"""

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import (
    GpuDepartment,
    GpuNode,
    GpuNodePool,
    GpuPodGroup,
    GpuProject,
    GpuTopology,
    Row,
    RowState,
    TopologyConstraint,
)
from extender.api.names import ANNOTATION_REVOKED
from extender.api.objects import Node, Pod, PriorityClass
from extender.ledger.rows import row_of
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot
from tests.support.builders import (
    PodBuilder,
    at_s,
    department,
    gpu_node,
    kept_row,
    node,
    part,
    pod,
    pod_group,
    pool,
    project,
    row,
    topology,
    whole,
)

KINDS = (Pod, Node, GpuNode, GpuDepartment, GpuProject, GpuNodePool, GpuPodGroup, GpuTopology)
QUEUE_KINDS = (GpuDepartment, GpuProject, GpuNodePool, GpuPodGroup, GpuTopology)
NODES = st.sampled_from(["n1", "n2", "n3"])
#: Pod `g` has the name of a group.
INSTANCE = "nvidia.com/mig-1g.10gb"
PODS = st.sampled_from(["a", "b", "c", "g"])
STATES: st.SearchStrategy[RowState] = st.sampled_from(["nominated", "reserved", "bound"])


class ClusterMachine(RuleBasedStateMachine):
    """The API as it is, what is still on its way, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.objects: dict[tuple[type, str], Any] = {}
        self.on_the_way: dict[type, deque[Event]] = {kind: deque() for kind in KINDS}
        self.last: dict[type, Event] = {}
        self.n_writes = 0
        self.n_uids = 0
        #: Pods by name that had succeeded when they were deleted, and were not made again.
        self.finished: dict[str, Pod] = {}
        self.seen = self.look_now()

    # -- the API changes ---------------------------------------------------------------------

    def put(self, obj: Any) -> None:
        """Store the object: a new version of what is there, else a new object."""
        key = type(obj), obj.metadata.name
        before = self.objects.get(key)
        self.n_writes += 1
        if before is None:
            self.n_uids += 1
            if isinstance(obj, Pod):
                self.finished.pop(obj.metadata.name, None)
        uid = before.metadata.uid if before else f"uid-{self.n_uids}"
        meta = replace(obj.metadata, uid=uid, resource_version=str(self.n_writes))
        stored = replace(obj, metadata=meta)
        self.objects[key] = stored
        self.on_the_way[type(obj)].append(Upserted(stored))

    def delete(self, kind: type, name: str) -> None:
        stored = self.objects.pop((kind, name), None)
        if stored is not None:
            meta = stored.metadata
            if kind is Pod and stored.is_terminal:
                self.finished[name] = stored
            self.on_the_way[kind].append(Removed(kind, meta.uid, meta.namespace, meta.name))

    @rule(
        name=PODS,
        milli=st.sampled_from([0, 250, 500, 1000]),
        group=st.sampled_from(["", "g", "h"]),
        parts=st.sampled_from(["", "part-0=1,part-1=2"]),
        label=st.sampled_from(["", "p", "q"]),
        pools=st.sampled_from([(), ("x",), ("x", "y")]),
        asks=st.sampled_from(["", "beside", "apart", "rack"]),
    )
    def make_pod(
        self,
        *,
        name: str,
        milli: int,
        group: str,
        parts: str,
        label: str,
        pools: tuple[str, ...],
        asks: str,
    ) -> None:
        if (Pod, name) in self.objects:
            return
        built = self.describe(name, milli, group).labelled(app=name).user(label or "ann")
        if parts:
            built.notes({"ballast.dev/min-member": "3", "ballast.dev/sub-groups": parts})
            built.sub_group("part-1").created(5)
        if asks == "rack":
            built.notes({"ballast.dev/topology-required-level": "rack"})
        elif asks:
            getattr(built, asks)("zone", app="a")
        if label:
            built.project(label)
        if pools:
            built.pools(*pools)
        self.put(built.build())

    @staticmethod
    def describe(name: str, milli: int, group: str) -> PodBuilder:
        built = pod(name).host("1", "1Gi")
        if milli:
            built.needs(milli)
        else:
            built.instances(INSTANCE, 2)
        return built.gang(group, 2) if group else built

    @rule(name=PODS, on=NODES, by=st.sampled_from(["us", "others", "kubelet"]))
    def bind_pod(self, name: str, on: str, by: str) -> None:
        stored = self.objects.get((Pod, name))
        if stored is not None and not stored.spec.node_name and not stored.is_terminal:
            notes = dict(stored.metadata.annotations or {})
            if by == "us":
                notes["ballast.dev/cards"] = "0:250:1"
            elif by == "kubelet":
                notes["kubernetes.io/config.mirror"] = "hash"
            spec = replace(stored.spec, node_name=on, scheduling_gates=None)
            self.put(
                replace(stored, spec=spec, metadata=replace(stored.metadata, annotations=notes))
            )

    @rule(name=PODS, group=st.sampled_from(["g", "h"]))
    def relabel_pod(self, name: str, group: str) -> None:
        stored = self.objects.get((Pod, name))
        if stored is not None and not stored.is_terminal:
            labels = {**(stored.metadata.labels or {}), "ballast.dev/pod-group": group}
            self.put(replace(stored, metadata=replace(stored.metadata, labels=labels)))

    @rule(name=PODS)
    def end_pod(self, name: str) -> None:
        stored = self.objects.get((Pod, name))
        if stored is not None and not stored.is_terminal:
            self.put(replace(stored, status=replace(stored.status, phase="Succeeded")))

    @rule(name=PODS)
    def delete_pod(self, name: str) -> None:
        self.delete(Pod, name)

    @rule(name=NODES, ready=st.booleans(), zone=st.sampled_from(["", "1", "2"]))
    def put_node(self, name: str, ready: bool, zone: str) -> None:
        built = node(name).gpus(2).ready("True" if ready else "False").gpu_milli(2000)
        if zone == "2":
            built.instances(INSTANCE, 7)
        self.put((built.labelled(zone=zone) if zone else built).build())

    @rule(kind=st.sampled_from([Node, GpuNode]), name=NODES)
    def delete_node(self, kind: type, name: str) -> None:
        self.delete(kind, name)

    @rule(name=NODES, cards=st.integers(0, 3))
    def put_gpu_node(self, name: str, cards: int) -> None:
        stored = self.objects.get((GpuNode, name))
        built = gpu_node(name, cards).build()
        self.put(replace(built, spec=stored.spec) if stored else built)

    @rule(on=NODES, name=PODS, state=STATES, all_of_it=st.booleans())
    def add_row(self, on: str, name: str, state: RowState, all_of_it: bool) -> None:
        holder, ledger = self.objects.get((Pod, name)), self.objects.get((GpuNode, on))
        if holder is not None and ledger is not None:
            cards = whole(0) if all_of_it else part(1, 250)
            added = row(holder, cards, state, epoch=self.n_writes)
            others = [held for held in ledger.spec.rows if held.uid != added.uid]
            self.set_rows(ledger, [*others, added])

    @rule(on=NODES, name=PODS)
    def revoke_row(self, on: str, name: str) -> None:
        """A leader touches the pod, whose row on the node may go from then on."""
        stored, ledger = self.objects.get((Pod, name)), self.objects.get((GpuNode, on))
        held = row_of(ledger.spec.rows, stored.metadata.uid) if stored and ledger else None
        if stored is not None and held is not None:
            notes = {ANNOTATION_REVOKED: held.revocation_on(on)}
            merged = {**(stored.metadata.annotations or {}), **notes}
            self.put(replace(stored, metadata=replace(stored.metadata, annotations=merged)))

    @rule(on=NODES, name=PODS)
    def keep_place(self, on: str, name: str) -> None:
        """The pod is moved: told to leave, with a place kept for its successor."""
        holder, ledger = self.objects.get((Pod, name)), self.objects.get((GpuNode, on))
        if holder is None or ledger is None or holder.spec.node_name in ("", on):
            return
        others = [held for held in ledger.spec.rows if held.uid != holder.metadata.uid]
        self.set_rows(ledger, [*others, kept_row(holder, part(1, 250), cpu_milli=1000)])

    @rule(name=PODS)
    def tell_to_leave(self, name: str) -> None:
        stored = self.objects.get((Pod, name))
        if stored is not None and stored.spec.node_name:
            meta = replace(stored.metadata, deletion_timestamp=at_s(2000))
            self.put(replace(stored, metadata=meta))

    @rule(on=NODES, keep=st.integers(0, 2))
    def remove_rows(self, on: str, keep: int) -> None:
        ledger = self.objects.get((GpuNode, on))
        if ledger is not None:
            self.set_rows(ledger, ledger.spec.rows[:keep])

    def set_rows(self, ledger: GpuNode, rows: list[Row]) -> None:
        self.put(replace(ledger, spec=replace(ledger.spec, rows=rows)))

    @rule(
        name=st.sampled_from(["p", "q"]),
        has_namespace=st.booleans(),
        quota=st.sampled_from([0, 2, "2.5"]),
        default=st.sampled_from(["", "x"]),
        zone=st.sampled_from(["", "1"]),
    )
    def put_project(
        self, name: str, has_namespace: bool, quota: int | str, default: str, zone: str
    ) -> None:
        built = project(name).namespaces(*(["team-a"] if has_namespace else []))
        built.quota(quota, pool="x")
        if default:
            built.default_pools(default)
        if zone:
            built.places("training", zone=zone)
        self.put(built.build())

    @rule(quota=st.integers(0, 3))
    def put_department(self, quota: int) -> None:
        self.put(department("science").quota(quota).build())

    @rule(
        name=st.sampled_from(["x", "y"]),
        zone=st.sampled_from(["", "1", "2"]),
        by_quota=st.booleans(),
    )
    def put_pool(self, name: str, zone: str, by_quota: bool) -> None:
        built = pool(name, zone=zone) if zone else pool(name)
        self.put((built.without_weights() if by_quota else built).build())

    @rule(
        name=st.sampled_from(["g", "h"]),
        min_member=st.integers(1, 3),
        parts=st.integers(0, 2),
        level=st.sampled_from(["", "rack"]),
    )
    def put_group(self, name: str, min_member: int, parts: int, level: str) -> None:
        built = pod_group(name, min_member)
        near = TopologyConstraint(required_topology_level=level) if level else None
        for number in range(parts):
            built.sub_group(f"part-{number}", number + 1, topology_constraint=near)
        self.put(built.build())

    @rule(levels=st.sampled_from([("zone",), ("zone", "rack")]))
    def put_topology(self, levels: tuple[str, ...]) -> None:
        self.put(topology("dc", *levels))

    @rule(kind=st.sampled_from(QUEUE_KINDS), pick=st.integers(0, 3))
    def delete_queue(self, kind: type, pick: int) -> None:
        stored = [name for held, name in sorted(self.objects, key=str) if held is kind]
        if stored:
            self.delete(kind, stored[pick % len(stored)])

    # -- events arrive -----------------------------------------------------------------------

    @rule(kind=st.sampled_from(KINDS), count=st.integers(1, 5))
    def deliver(self, kind: type, count: int) -> None:
        for _ in range(min(count, len(self.on_the_way[kind]))):
            self.last[kind] = self.on_the_way[kind].popleft()
            self.state.apply(self.last[kind])

    @rule(kind=st.sampled_from(KINDS))
    def deliver_again(self, kind: type) -> None:
        if kind in self.last:
            self.state.apply(self.last[kind])

    @rule()
    def look(self) -> None:
        """Reading in between must not matter."""
        self.state.snapshot(0)

    @rule(on=NODES, keep=st.integers(0, 2))
    def free_rows(self, on: str, keep: int) -> None:
        """Rows that may go, of which the ledger may hear never, or by a write that comes first."""
        known = self.state.gpu_nodes.get(on)
        if known is not None:
            self.state.free_rows({on: known.spec.rows[keep:]})

    @rule()
    def take_back_freed(self) -> None:
        self.state.take_back_freed()

    # -- what must hold ----------------------------------------------------------------------

    @invariant()
    def parts_agree(self) -> None:
        self.state.validate_state()

    @invariant()
    def rows_are_in_the_ledger_or_freed(self) -> None:
        freed = self.state.freed_rows()
        for name, known in self.state.gpu_nodes.items():
            ledger = self.state.gpu_node(name)
            assert ledger is not None
            rows = [*known.spec.rows, *freed.get(name, ())]
            assert sorted(row.uid for row in rows) == sorted(row.uid for row in ledger.spec.rows)

    @invariant()
    def version_is_another_where_a_decision_reads_something_else(self) -> None:
        before, self.seen = self.seen, self.look_now()
        assert before[0] != self.seen[0] or before[1] == self.seen[1]

    def look_now(self) -> tuple[object, Any]:
        """The model's version, and what was to be seen then, without the versions of pods."""
        seen = picture(self.state)
        seen["workloads"] = [versionless(each) for each in seen["workloads"]]
        seen["unfinished"] = [
            (versionless(workload), [each.uid for each in held])
            for workload, held in seen["unfinished"]
        ]
        del seen["problems"]
        return self.state.version(), seen

    def teardown(self) -> None:
        for kind, events in self.on_the_way.items():
            self.deliver(kind, len(events))
            self.state.apply(Synced(kind))
        self.state.take_back_freed()
        fresh = ClusterState()
        for stored in (*self.finished.values(), *self.objects.values()):
            fresh.apply(Upserted(stored))
        for ended in self.finished.values():
            meta = ended.metadata
            fresh.apply(Removed(Pod, meta.uid, meta.namespace, meta.name))
        for kind in KINDS:
            fresh.apply(Synced(kind))
        assert picture(self.state) == picture(fresh)


def picture(state: ClusterState) -> Any:
    """All that can be asked, in a form that does not depend on the order of events."""
    snapshot = state.snapshot(0)
    return {
        "nodes": nodes_of(snapshot),
        "pools": dict(snapshot.pools),
        "queues": dict(snapshot.queues),
        "workloads": sorted(map(nameless, snapshot.workloads.values()), key=str),
        "topologies": dict(snapshot.topologies),
        "sums": snapshot.tally and snapshot.tally.sums,
        "kept": state.kept_places(),
        "problems": state.problems(),
        "stray": [(stray.node, stray.row) for stray in state.rows_to_free()],
        "bound": {node: set(uids) for node, uids in state.rows_to_mark_bound().items()},
        "lost": state.lost_rows(),
        "unfinished": [(nameless(left.workload), left.held) for left in state.unfinished()],
        "differences": state.differences(),
    }


def nameless(workload: WorkloadView) -> WorkloadView:
    """Which of a pod and a group of one name gives way to the other depends on which came first."""
    return replace(workload, key="")


def versionless(workload: WorkloadView) -> WorkloadView:
    """The same, read from pods of no version."""
    return replace(workload, pods=tuple(replace(p, resource_version="") for p in workload.pods))


def nodes_of(snapshot: Snapshot) -> dict[str, Any]:
    nodes = snapshot.nodes
    return {
        name: (
            list(nodes.cards.free_of(ix)),
            nodes.cards.card_mib[ix],
            nodes.pool[ix],
            nodes.labels[ix],
            nodes.is_ready[ix],
            nodes.free_cpu_milli[ix],
            nodes.free_memory_mib[ix],
            nodes.free_pods[ix],
            nodes.free_counted[ix],
        )
        for name, ix in nodes.cards.ix.items()
    }


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=100, stateful_step_count=40)


def test_priority_classes_are_part_of_the_model() -> None:
    state = ClusterState()
    state.apply(Removed(PriorityClass, "uid", "", "urgent"))
    state.validate_state()
