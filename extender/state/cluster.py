"""The model of the cluster, built from watch events, and the snapshots that decisions read.

Pure: no I/O, no clock. `ClusterState.apply` is the only entry for events. Derived values are
updated on reading, at the cost of what changed since. Pods and Nodes are stored as
projections, objects of our own kinds unchanged.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from itertools import chain
from typing import Any

from extender.api.claims import DeviceClass, ResourceClaim, ResourceSlice
from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import (
    GpuDepartment,
    GpuNode,
    GpuNodePool,
    GpuPodGroup,
    GpuProject,
    GpuTopology,
    Row,
)
from extender.api.objects import Node, OwnerReference, Pod, PodDisruptionBudget, PriorityClass
from extender.state.budgets import BudgetIndex
from extender.state.fleet.fleet import Fleet
from extender.state.fleet.foreign import ForeignPod
from extender.state.fleet.inventory import Differences
from extender.state.ledger_intake import LedgerIntake
from extender.state.model import Amounts, Bystanders, PodView, WorkloadView
from extender.state.nodes import NodeTable, RowIndex
from extender.state.pod_intake import PodIntake
from extender.state.pods.claims import VolumeView
from extender.state.problems import Problem
from extender.state.queue_intake import QueueIntake
from extender.state.queues import Queues
from extender.state.refusals import Denial
from extender.state.snapshot import Snapshot
from extender.state.topologies import Topologies
from extender.state.upkeep.kept_pods import KeptPods
from extender.state.upkeep.upkeep import GoneUids, KeptPlace, LostRow, StrayRow, Upkeep
from extender.state.workloads.assembly import Assembly
from extender.state.workloads.collection import Unfinished, Workloads
from extender.state.workloads.imagined import Wanted, imagine
from extender.state.workloads.own_groups import repeats_pods
from extender.state.workloads.stated import ShortJob


class ClusterState:
    """Everything the controller knows. Not thread-safe; no method awaits."""

    def __init__(self) -> None:
        self._queues = Queues()
        self._topologies = Topologies()
        self._budgets = BudgetIndex()
        self._fleet = Fleet(self._queues)
        self._rows = RowIndex()
        self._gone = GoneUids()
        self._assembly = Assembly(self._rows, self._queues, self._topologies, self._budgets)
        self._workloads = Workloads(self._assembly)
        self._upkeep = Upkeep(self._rows, self._workloads, self._fleet.foreign, self._gone)
        self._kept = KeptPods(self._rows, self._fleet, self._workloads, self._upkeep)
        self._ledgers = LedgerIntake(self._fleet, self._rows, self._kept)
        self._synced: set[type] = set()
        self._pods = PodIntake(self._kept, self._workloads, self._fleet, self._assembly, self._gone)
        self._held_lately: Mapping[tuple[str, str], Amounts] = {}
        devices, touch = self._fleet.devices, self._fleet.touch
        stated = QueueIntake(
            self._queues, self._topologies, self._budgets, self._fleet, self._workloads
        )
        set_class_value = self._workloads.set_class_value
        self._put: dict[type, Callable[[Any], None]] = {
            Pod: self._pods.put,
            Node: self._fleet.set_host,
            GpuNode: self._ledgers.put,
            GpuDepartment: self._queues.set_department,
            GpuProject: stated.put_project,
            GpuNodePool: stated.put_pool,
            GpuPodGroup: self._workloads.set_group,
            GpuTopology: stated.put_topology,
            PodDisruptionBudget: stated.put_budget,
            PriorityClass: lambda each: set_class_value(each.metadata.name, each.value),
            DeviceClass: lambda each: touch(devices.set_class(each)),
            ResourceSlice: lambda each: touch(devices.set_slice(each)),
            ResourceClaim: lambda each: touch(devices.set_claim(each)),
        }
        self._drop: dict[type, Callable[[Removed], None]] = {
            Pod: self._pods.remove,
            Node: lambda gone: self._fleet.drop_host(gone.name, gone.uid),
            GpuNode: self._ledgers.drop,
            GpuDepartment: stated.drop_department,
            GpuProject: stated.drop_project,
            GpuNodePool: stated.drop_pool,
            GpuPodGroup: stated.drop_group,
            GpuTopology: stated.drop_topology,
            PodDisruptionBudget: stated.drop_budget,
            PriorityClass: lambda gone: set_class_value(gone.name, None),
            DeviceClass: lambda gone: touch(devices.drop_class(gone.name, gone.uid)),
            ResourceSlice: lambda gone: touch(devices.drop_slice(gone.uid)),
            ResourceClaim: lambda gone: touch(devices.drop_claim(gone.uid)),
        }

    # -- changes -----------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Apply one event; raises KeyError for a kind that is not part of the model.

        Applying an event twice changes nothing. Objects may also come from answers to our own
        writes, ahead of the watch. So an older version of a stored pod or GpuNode is ignored, and
        so is an object that was already deleted in a later version.
        """
        match event:
            case Upserted(obj):
                meta = obj.metadata
                if not self._gone.is_outdated(meta.uid, meta.resource_version):
                    self._put[type(obj)](obj)
            case Removed(kind=kind, uid=uid, version=version):
                self._gone.add(uid, version)
                self._drop[kind](event)
            case Synced(kind):
                self._synced.add(kind)

    def set_past_use(self, past_use: Mapping[str, Mapping[str, Amounts]]) -> None:
        """Set the decayed past use by queue and node pool, in millionths of the pool's capacity.

        The controller computes it from its decisions; no object stores it.
        """
        self._queues.past_use = past_use

    def set_held_lately(self, averages: Mapping[tuple[str, str], Amounts]) -> None:
        """Set each queue's average allocation over the last day, for `Snapshot.held_lately`."""
        self._held_lately = averages

    def assume_terminating(self, uids: Iterable[str]) -> None:
        """Treat these live pods as terminating, because they are about to be evicted.

        Until the watch reports the deletion, or `forget_terminating` is called.
        """
        self._pods.assume_terminating(uids)

    def forget_terminating(self, uid: str) -> None:
        """The pod is not evicted after all: restore its state as the API server last sent it."""
        self._pods.forget_terminating(uid)

    def is_assumed_terminating(self, uid: str) -> bool:
        """Whether the pod is about to be evicted and the watch has not reported it yet."""
        return uid in self._pods.assumed

    def set_denial(self, pod: PodView, denial: Denial) -> None:
        """Note that the API server refused the patch that releases the live pod."""
        if pod.uid in self._workloads.facts:
            self._assembly.denials[pod.uid] = denial
            self._workloads.touch_pod(pod.uid)

    def set_volume(self, namespace: str, claim: str, view: VolumeView | None) -> None:
        """Set what is known of a PersistentVolumeClaim; None forgets it.

        Claims are not watched: the controller reads those that `wanted_claims` names.
        """
        known = self._assembly.volumes
        key = f"{namespace}/{claim}"
        before = known.pop(key, None)
        if view is not None:
            known[key] = view
        if before != view:
            for uid in self._pods.users_of(namespace, claim):
                self._workloads.touch_pod(uid)

    def set_job_size(self, job: ShortJob, n_pods: int | None) -> None:
        """Set how many pods the Job of a gang runs at once; None: as its pods state.

        Jobs are not watched: the controller reads those that `short_jobs` names.
        """
        self._workloads.set_job_size(job, n_pods)

    # -- what decisions read -----------------------------------------------------------------

    def snapshot(self, now_s: int) -> Snapshot:
        """The cluster as it is now, for one decision at the time `now_s`."""
        nodes = self._fleet.table()
        self._workloads.pass_time(now_s)
        return Snapshot(
            now_s=now_s,
            nodes=nodes.copy(),
            pools=self._queues.pool_views,
            queues=self._queues.views(),
            workloads=self._workloads.views(),
            topologies=self._topologies.levels,
            orphans=tuple((row.node, tuple(row.row.cards)) for row in self.rows_to_free()),
            budgets=self._budgets_left(),
            held_lately=self._held_lately,
            kept=frozenset(place.node for place in self.kept_places()),
            tally=self._workloads.tally_in(nodes, self._fleet.n_reshaped).copy(),
            bystanders=self._bystanders(),
        )

    def version(self) -> object:
        """A value that stays equal while nothing changes that a decision reads.

        It ignores the time, past use, and resource versions.
        """
        changes = self._fleet.n_changes, self._workloads.n_changes, self._queues.n_changes
        return changes, self._topologies.levels, self._budgets_left(), self._bystanders()

    def has_synced(self, kind: type) -> bool:
        """Whether the initial list of the kind has been delivered in full."""
        return kind in self._synced

    def pod(self, uid: str) -> PodView | None:
        """The live pod of this UID, if it requests GPUs or has our gate."""
        return self._workloads.pod(uid)

    def gpu_node(self, name: str) -> GpuNode | None:
        """The node's ledger as last seen, including freed rows that are not yet written."""
        return self._ledgers.get(name)

    def row_of(self, pod: PodView) -> Row | None:
        """The pod's row on its node, or on the node where it is planned."""
        return self._rows.held_of(pod.uid).get(pod.node)

    def node_table(self) -> NodeTable:
        """Every node with GPUs as it is now. Shared: callers must not change it."""
        return self._fleet.table()

    @property
    def gpu_nodes(self) -> Mapping[str, GpuNode]:
        """Every ledger by node name, without freed rows."""
        return self._fleet.gpu_nodes

    @property
    def departments(self) -> Mapping[str, GpuDepartment]:
        """Departments by name."""
        return self._queues.departments

    @property
    def projects(self) -> Mapping[str, GpuProject]:
        """Projects by name."""
        return self._queues.projects

    @property
    def listed_namespaces(self) -> Set[str]:
        """Namespaces that a project lists."""
        return self._queues.listed_namespaces

    @property
    def node_pools(self) -> Mapping[str, GpuNodePool]:
        """Node pools by name."""
        return self._queues.pools

    @property
    def pod_groups(self) -> Mapping[str, GpuPodGroup]:
        """Pod groups by workload key, `namespace/name`."""
        return self._workloads.groups

    def workloads(self) -> Mapping[str, WorkloadView]:
        """Every workload with a live pod, by key, as it is now."""
        return self._workloads.views()

    def imagine(self, wanted: Wanted) -> WorkloadView | None:
        """The workload as if it were submitted now; None where no pod requests GPUs."""
        return imagine(self._assembly, wanted)

    # -- what the controller repairs ---------------------------------------------------------

    def rows_to_free(self) -> list[StrayRow]:
        """Rows that are no longer needed; unconfirmed ones need a live read or a fence first."""
        return self._upkeep.strays(has_all_pods=Pod in self._synced)

    def rows_to_mark_bound(self) -> Mapping[str, Set[str]]:
        """By node, UIDs of bound pods with a row that is not marked `bound` yet. A live view."""
        return self._upkeep.to_mark_bound

    def free_rows(self, rows_by_node: Mapping[str, Iterable[Row]]) -> None:
        """Remove these unused rows from the model; `freed_rows` lists them until the ledger has
        removed them too."""
        self._ledgers.free(rows_by_node)

    def freed_rows(self) -> dict[str, list[Row]]:
        """By node, rows that are still in the ledger but no longer in the model."""
        return self._ledgers.freed()

    def take_back_freed(self) -> None:
        """Restore the freed rows that the ledger still has: another process may lead from now."""
        self._ledgers.take_back_freed()

    def lost_rows(self) -> list[LostRow]:
        """Bound GPU pods that have no row in the ledger of their node."""
        return self._upkeep.lost_rows()

    def kept_places(self) -> list[KeptPlace]:
        """Reservations for the successors of pods that were moved."""
        return self._upkeep.kept_places()

    def successors(self, row: Row) -> list[PodView]:
        """Pending pods that could use the reservation in the row of a moved pod, in order."""
        return self._workloads.successors(row)

    def user_of(self, uid: str) -> str | None:
        """The user that the live pod names, empty if it names none; None: no such pod."""
        facts = self._workloads.facts.get(uid)
        return facts.user if facts else None

    def maker_of(self, pod: PodView) -> OwnerReference | None:
        """The controller that would recreate the live pod."""
        facts = self._workloads.facts.get(pod.uid)
        return facts.maker if facts else None

    def is_sized(self, workload: WorkloadView) -> bool:
        """Whether a pod or its GpuPodGroup states how many pods of the group must run together."""
        group = self.pod_groups.get(workload.key)
        if group is not None and not repeats_pods(group):
            return True
        facts = (self._workloads.facts.get(pod.uid) for pod in workload.pods)
        return any(fact.stated.min_member or fact.stated.sub_groups for fact in facts if fact)

    def placed_reason(self, pod: PodView) -> str:
        """Why the pod waits, by its condition `ballast.dev/Placed`; empty without one."""
        facts = self._workloads.facts.get(pod.uid)
        return facts.placed_reason if facts else ""

    def workload_of(self, pod: PodView) -> WorkloadView | None:
        """The live pod's workload, as of the last question about all workloads."""
        return self._workloads.workload_of(pod.uid)

    def foreign_pods(self) -> list[ForeignPod]:
        """Bound pods that hold cards without a row, or by claims more cards than their row has."""
        queues, pool_of = self._queues, self._fleet.pool_of
        beyond, facts_of = self._fleet.beyond_rows(), self._kept.facts_of
        holders = self._fleet.foreign.holders()
        held = [(facts, facts.plugin_cards) for facts in holders if facts.uid not in beyond]
        held += [(facts, n) for uid, n in sorted(beyond.items()) if (facts := facts_of(uid))]
        return [
            ForeignPod(
                facts,
                n_cards,
                is_managed=queues.is_managed(facts.namespace),
                is_beyond_row=facts.uid in beyond,
                is_unwanted=facts.uid in beyond or pool_of(facts.node) in queues.strict_pools,
                grace_s=queues.grace_s(facts, pool_of(facts.node)),
            )
            for facts, n_cards in held
        ]

    def wanted_claims(self) -> set[tuple[str, str]]:
        """Namespace and name of the PersistentVolumeClaims of all pending pods, and of running pods
        that consolidation may move to empty their nodes."""
        views, table = self._queues.pool_views, self._fleet.table()
        emptied = {name for name, view in views.items() if view.consolidate_after_s}
        running = self._pods.bound_claimants() if emptied else ()
        here = (each for each in running if table.pool_of(each.node) in emptied)
        found = chain(self._pods.claimants(), here)
        return {(each.namespace, claim) for each in found for claim in each.claims}

    def short_jobs(self) -> set[ShortJob]:
        """Jobs of gangs that have fewer live pods than their size."""
        return self._workloads.short_jobs()

    def released_without_row(self) -> list[PodView]:
        """Unbound pods without our gate and without a row: in this state nothing binds them."""
        return self._upkeep.released_without_row()

    def unfinished(self) -> list[Unfinished]:
        """Workloads with a plan that was carried out only in part."""
        return self._workloads.unfinished()

    def differences(self) -> Differences:
        """How Nodes and GpuNodes differ."""
        return self._fleet.differences()

    def problems(self) -> list[Problem]:
        """Invalid figures and references that users wrote, by object."""
        return sorted([*self._queues.problems(), *self._fleet.problems()])

    def validate_state(self) -> None:
        """Assert every invariant between the parts. Costs as much as building the model anew."""
        index = RowIndex()
        for name, gpu_node in self.gpu_nodes.items():
            index.set_rows(name, gpu_node.spec.rows)
        uids = {row.uid for gpu in self.gpu_nodes.values() for row in gpu.spec.rows}
        ours, foreign = self._workloads.facts, self._fleet.foreign.facts
        uids |= ours.keys() | foreign.keys()
        for uid in uids:
            assert index.held_of(uid) == self._rows.held_of(uid), uid
        self._kept.validate()
        self._workloads.validate()
        self._workloads.validate_tally(self._fleet.table(), self._fleet.n_reshaped)
        self._upkeep.validate(uids)

    def _bystanders(self) -> tuple[Bystanders, ...]:
        """The pods without a row that the affinity of pending or running pods may select."""
        picky = self._workloads.tally_in(self._fleet.table(), self._fleet.n_reshaped).picky
        return self._fleet.bystanders({key.partition("/")[0] for key in picky})

    def _budgets_left(self) -> dict[str, int]:
        """What budgets still allow once the pods that are about to be evicted are subtracted."""
        left = self._budgets.allowed(self._workloads.namespaces)
        for uid in self._pods.assumed if left else ():
            pod = self._workloads.pod(uid)
            for budget in pod.budgets if pod else ():
                if budget in left:
                    left[budget] -= 1
        return left
