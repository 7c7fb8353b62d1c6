"""Models a cluster that another scheduler runs as if Ballast ran it.

Pure. Every GPU pod in a namespace of a project is changed as by admission, and every one with a
node gets a row in a ledger that exists only here. Assumptions are counted, each with a sentence.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from extender.api import names
from extender.api.aliases import GROUP_LABELS, MIN_MEMBER_KEYS, PROJECT_LABELS, first_of
from extender.api.demand import Demand, read_demand
from extender.api.events import Upserted
from extender.api.kinds import (
    CardShare,
    Device,
    GpuDepartment,
    GpuFigures,
    GpuNode,
    GpuNodePool,
    GpuNodeSpec,
    GpuNodeStatus,
    GpuProject,
    GpuProjectSpec,
    GpuTopology,
    PoolFigures,
    Row,
)
from extender.api.objects import (
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    SchedulingGate,
)
from extender.api.reasons import Refused
from extender.api.units import MILLI_PER_GPU, UnitError, share_mib, share_milli
from extender.shadow.peers import Peers
from extender.state.cluster import ClusterState
from extender.state.pods.facts import unix_s
from webhooks.vocabulary import speaks, translate

QueueObject = GpuDepartment | GpuProject | GpuNodePool | GpuTopology

#: Namespaces in which KAI Scheduler and Run:ai keep a pod for every shared card. The pods that
#: share the card are counted themselves.
_KEEPERS: Final = ("kai-resource-reservation", "runai-reservation")
#: On pods of KAI Scheduler and Run:ai: pods with the same value share a card.
_SHARED_CARD: Final = "runai-gpu-group"
#: Gates of other schedulers that hold pods for a quota, as ours does.
_GATES_OF_PEERS: Final = ("kueue.x-k8s.io/",)
#: Annotations, then labels, of other schedulers that name a gang.
_GROUP_NOTES: Final = ("scheduling.k8s.io/group-name", "pod-group-name")
_GROUP_WORDS: Final = (
    "kueue.x-k8s.io/pod-group-name",
    "jobset.sigs.k8s.io/jobset-name",
    "ray.io/cluster",
    "training.kubeflow.org/job-name",
)
#: Priorities below this are preemptible in Ballast.
_NOT_PREEMPTIBLE: Final = 100
_DEPARTMENT: Final = "all"

GUESSED_CARD: Final = "running pods share cards, and which card each has is not known"
NO_CARD_LEFT: Final = "running pods hold more GPUs than their node reports"
NO_CARD_SIZE: Final = (
    "running pods ask for GPU memory on a node without the label nvidia.com/gpu.memory, so they"
    " hold no card"
)
OTHER_QUEUE: Final = "pods name a queue other than the project of their namespace"
NO_PROJECT: Final = "pods with GPUs are in namespaces that no project lists"
NOT_READ: Final = "pods ask for GPUs in words that Ballast does not read"
HIGH: Final = "pods have a priority of 100 or more, which Ballast does not preempt"
NO_RUN_TIME: Final = "pods do not say how long they run"
NO_PODS_YET: Final = "gangs of Volcano are not enqueued and have no pods, so they are not counted"
NO_SAVES: Final = "running pods do not say how often they save their work"


@dataclass(slots=True)
class Seen:
    """The objects of the cluster. `ended` are pods with a node that were removed since the last
    look; `peers` is read from the other scheduler's objects."""

    nodes: Iterable[Node] = ()
    pods: Iterable[Pod] = ()
    ended: Iterable[Pod] = ()
    budgets: Iterable[PodDisruptionBudget] = ()
    classes: Iterable[PriorityClass] = ()
    peers: Peers = field(default_factory=Peers)


@dataclass(slots=True)
class Adopted:
    """The model, and how many pods each assumption concerns. `started` is when workloads without
    remaining pods started, in unix seconds, by their key while they were pending."""

    state: ClusterState
    assumed: Counter[str]
    started: dict[str, int] = field(default_factory=dict)


def adopt(seen: Seen, queues: Sequence[QueueObject] = ()) -> Adopted:
    """The cluster as if Ballast ran it, with these queues; without any, each namespace with a GPU
    pod is a project, all with the same weight."""
    return _Adoption(seen, queues).run()


@dataclass(slots=True)
class _Cards:
    """Free milli-GPU of the cards of one node."""

    devices: tuple[Device, ...]
    free: list[int]
    shared: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, devices: tuple[Device, ...]) -> "_Cards":
        return cls(devices, [MILLI_PER_GPU] * len(devices))

    def take(self, demand: Demand, shared_card: str) -> list[CardShare]:
        """Cards for a running pod; empty if the node has too few."""
        milli = demand.milli
        if demand.gpu_memory_mib and self.devices:
            milli = share_milli(demand.gpu_memory_mib, self.devices[0].memory_mib)
        known = self.shared.get(shared_card) if shared_card else None
        order = sorted(range(len(self.free)), key=lambda ix: (ix != known, self.free[ix], ix))
        found = [ix for ix in order if self.free[ix] >= milli][: demand.devices]
        if milli <= 0 or len(found) < demand.devices:
            return []
        for ix in found:
            self.free[ix] -= milli
            if shared_card:
                self.shared[shared_card] = ix
        return [CardShare(ix, milli, share_mib(milli, self.devices[ix].memory_mib)) for ix in found]


class _Adoption:
    def __init__(self, seen: Seen, queues: Sequence[QueueObject]) -> None:
        self._seen = seen
        self._pods = [pod for pod in (*seen.pods, *seen.peers.pods) if _counts(pod)]
        self._queues = queues or _project_per_namespace(self._pods)
        self._sizes = Counter(_group_key(pod) for pod in self._pods)
        self._state = ClusterState()
        self._assumed: Counter[str] = Counter(seen.peers.assumed)
        self._assumed[NO_PODS_YET] = len(seen.peers.not_enqueued - self._sizes.keys())
        self._project_of = _by_namespace(self._queues)
        self._cards: dict[str, _Cards] = {}
        self._rows: dict[str, list[Row]] = {}

    def run(self) -> Adopted:
        for each in (*self._queues, *self._seen.classes, *self._seen.budgets, *self._seen.nodes):
            self._state.apply(Upserted(each))
        ledgers = self._state.differences().to_create
        self._cards = {name: _Cards.of(devices) for name, devices in ledgers.items()}
        # Pods with whole cards come first, so that no shared card is carved out of theirs.
        for pod in sorted(self._pods, key=lambda each: (not _is_whole(each), _age_of(each))):
            self._take(pod)
        for name, devices in ledgers.items():
            self._state.apply(
                Upserted(
                    GpuNode(
                        metadata=ObjectMeta(name=name),
                        spec=GpuNodeSpec.of(self._rows.get(name, [])),
                        status=GpuNodeStatus(devices=list(devices)),
                    )
                )
            )
        self._assumed.update(str(each) for each in self._state.problems())
        return Adopted(self._state, +self._assumed, self._started())

    def _started(self) -> dict[str, int]:
        found = dict(self._seen.peers.admitted)
        gone = [pod for pod in self._seen.pods if pod.is_terminal]
        for pod in (*gone, *self._seen.ended):
            meta, start_s = pod.metadata, unix_s(pod.status.start_time)
            if not pod.spec.node_name or not start_s:
                continue
            for key in (_group_key(pod), meta.key):
                found[key] = max(start_s, found.get(key, 0))
        return found

    def _take(self, pod: Pod) -> None:
        pod = self._translated(pod)
        demand = read_demand(pod)
        if isinstance(demand, Refused) or not demand.is_gpu_work:
            if pod.spec.node_name:
                self._state.apply(Upserted(pod))
            return
        meta = pod.metadata
        project = self._project_of.get(meta.namespace, "")
        if not project:
            self._assumed[NO_PROJECT] += 1
            if pod.spec.node_name:
                self._state.apply(Upserted(pod))
            return
        self._note(pod, project)
        mine = self._admitted(pod)
        self._state.apply(Upserted(mine))
        if mine.spec.node_name:
            self._give_row(mine, demand, project)

    def _translated(self, pod: Pod) -> Pod:
        """The pod with a request in our vocabulary."""
        if not speaks(pod):
            return pod
        try:
            translation = translate(pod)
        except UnitError:
            translation = None
        if translation is None:
            self._assumed[NOT_READ] += 1
            return pod
        return translation.of(pod)

    def _note(self, pod: Pod, project: str) -> None:
        named = first_of(pod.metadata.labels, PROJECT_LABELS)
        says_run = pod.metadata.annotation(names.ANNOTATION_EXPECTED_RUN)
        says_saves = pod.metadata.annotation(names.ANNOTATION_CHECKPOINT)
        self._assumed[OTHER_QUEUE] += bool(named) and named != project
        self._assumed[HIGH] += (pod.spec.priority or 0) >= _NOT_PREEMPTIBLE
        self._assumed[NO_RUN_TIME] += not (says_run or pod.spec.active_deadline_seconds)
        self._assumed[NO_SAVES] += bool(pod.spec.node_name) and not says_saves

    def _admitted(self, pod: Pod) -> Pod:
        """The pod as after admission: in the project of its namespace and in its gang, with the
        default priority if it names none, and gated while it has no node. Volumes are removed,
        because claims are not read here and an unread claim would hold back the pod."""
        meta, spec = pod.metadata, pod.spec
        labels = {key: value for key, value in (meta.labels or {}).items()
                  if key not in PROJECT_LABELS}  # fmt: skip
        notes = dict(meta.annotations or {})
        group, key = _group_of(pod), _group_key(pod)
        size = self._seen.peers.sizes.get(key, self._sizes[key])
        if group and max(size, self._sizes[key]) > 1 and not first_of(labels, GROUP_LABELS):
            labels[names.LABEL_POD_GROUP] = group
        if first_of(labels, GROUP_LABELS) and not _states_size(labels, notes):
            notes[names.ANNOTATION_MIN_MEMBER] = str(max(1, size))
        others = [gate for gate in pod.gates if not gate.startswith(_GATES_OF_PEERS)]
        gates = [] if spec.node_name else [names.GATE, *others]
        return Pod(
            replace(meta, labels=labels, annotations=notes),
            replace(
                spec,
                priority=spec.priority if spec.priority or spec.priority_class_name else None,
                scheduling_gates=[SchedulingGate(gate) for gate in dict.fromkeys(gates)],
                volumes=None,
            ),
            pod.status,
        )

    def _give_row(self, pod: Pod, demand: Demand, project: str) -> None:
        meta, node = pod.metadata, pod.spec.node_name
        cards = self._cards.get(node)
        held: list[CardShare] = []
        if demand.devices:
            shared_card = meta.label(_SHARED_CARD)
            held = cards.take(demand, shared_card) if cards else []
            if not held:
                is_sized = not demand.gpu_memory_mib or not cards or cards.devices[0].memory_mib
                self._assumed[NO_CARD_LEFT if is_sized else NO_CARD_SIZE] += 1
                return
            self._assumed[GUESSED_CARD] += held[0].milli < MILLI_PER_GPU and not shared_card
        self._rows.setdefault(node, []).append(
            Row(
                uid=meta.uid,
                namespace=meta.namespace,
                name=meta.name,
                project=project,
                cards=held,
                counted=dict(demand.counted),
                state="bound",
                reserved_at=unix_s(pod.status.start_time),
            )
        )


def _by_namespace(queues: Iterable[QueueObject]) -> dict[str, str]:
    """Project by namespace: the oldest that lists it; of equal age, the first by name."""
    projects = [each for each in queues if isinstance(each, GpuProject)]
    projects.sort(key=lambda each: (unix_s(each.metadata.creation_timestamp), each.metadata.name))
    return {
        space: each.metadata.name for each in reversed(projects) for space in each.spec.namespaces
    }


def _counts(pod: Pod) -> bool:
    return not pod.is_terminal and pod.metadata.namespace not in _KEEPERS


def _is_whole(pod: Pod) -> bool:
    demand = read_demand(pod)
    return isinstance(demand, Demand) and demand.milli == MILLI_PER_GPU


def _age_of(pod: Pod) -> tuple[int, str, str]:
    meta = pod.metadata
    return unix_s(meta.creation_timestamp), meta.namespace, meta.name


def _group_of(pod: Pod) -> str:
    meta = pod.metadata
    return (
        first_of(meta.labels, GROUP_LABELS)
        or first_of(meta.annotations, _GROUP_NOTES)
        or first_of(meta.labels, _GROUP_WORDS)
    )


def _group_key(pod: Pod) -> str:
    group = _group_of(pod)
    return f"{pod.metadata.namespace}/{group}" if group else ""


def _states_size(labels: Mapping[str, str], notes: Mapping[str, str]) -> bool:
    return bool(first_of(notes, MIN_MEMBER_KEYS) or first_of(labels, MIN_MEMBER_KEYS))


def _project_per_namespace(pods: Iterable[Pod]) -> list[QueueObject]:
    """A project for each namespace with a GPU pod, except the system namespaces."""
    spaces = sorted(
        {
            pod.metadata.namespace
            for pod in pods
            if isinstance(found := read_demand(pod), Refused) or found.is_gpu_work or speaks(pod)
        }
        - set(names.SYSTEM_NAMESPACES)
    )
    projects = [
        GpuProject(
            metadata=ObjectMeta(name=space),
            spec=GpuProjectSpec(
                department=_DEPARTMENT,
                namespaces=[space],
                node_pools=[PoolFigures(name=names.DEFAULT_POOL, gpu=GpuFigures(quota=0))],
            ),
        )
        for space in spaces
    ]
    return [GpuDepartment(metadata=ObjectMeta(name=_DEPARTMENT)), *projects]
