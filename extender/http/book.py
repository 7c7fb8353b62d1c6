"""The extender's small model: GPU nodes with their rows, node pools and queues, but no pods.

`Book.apply(event)` is the only way to change it. A GpuNode that was read or written here may be
newer than the watch's next event, so older versions are ignored.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import GpuDepartment, GpuNode, GpuNodePool, GpuProject, Row
from extender.api.names import LABEL_NODE_POOL
from extender.api.units import UnitError, parse_gpus
from extender.api.versions import is_older
from extender.state.model import department_queue
from extender.state.nodes import CardTable, RowIndex
from extender.state.queues import Queues

#: Kinds that must be listed once before any verb is answered.
WATCHED: Final = (GpuNode, GpuNodePool, GpuProject, GpuDepartment)


class NodeClass(NamedTuple):
    """What decides refusals that are not about free cards; all nodes share a few of these."""

    pool: str
    card_mib: int
    model: str


class Book:
    """GPU nodes, rows by pod UID, use by project and pool, and the queues' figures."""

    def __init__(self) -> None:
        self.cards = CardTable()
        #: Index into `classes`, by the node's ix in `cards`; stale for dropped nodes.
        self.class_of: list[int] = []
        self.classes: dict[NodeClass, int] = {}
        self.queues = Queues()
        self._nodes: dict[str, GpuNode] = {}
        self._rows = RowIndex()
        self._pool_of: dict[str, str] = {}
        #: Milli-GPU held by rows, including nominated ones, by project and pool.
        self._uses: Counter[tuple[str, str]] = Counter()
        #: The same for rows that are being written.
        self._promised: Counter[tuple[str, str]] = Counter()
        self._fair_shares: dict[str, dict[str, int]] = {}
        self._projects_of: dict[str, set[str]] = {}
        self._synced: set[type] = set()
        self._put: dict[type, Callable[[Any], None]] = {
            GpuNode: self._set_node,
            GpuNodePool: self._set_pool,
            GpuProject: self._set_project,
            GpuDepartment: self._set_department,
        }
        self._drop: dict[type, Callable[[Removed], None]] = {
            GpuNode: self._drop_node,
            GpuNodePool: self._drop_pool,
            GpuProject: self._drop_project,
            GpuDepartment: self._drop_department,
        }

    @property
    def is_synced(self) -> bool:
        """Whether the initial lists of all kinds have been delivered."""
        return self._synced.issuperset(WATCHED)

    def __len__(self) -> int:
        """The number of known GPU nodes."""
        return len(self._nodes)

    def apply(self, event: Event) -> None:
        """Apply an event of a reflector, or an object that was just read or written."""
        match event:
            case Synced(kind=kind):
                self._synced.add(kind)
            case Upserted(obj=obj):
                self._put[type(obj)](obj)
            case Removed(kind=kind):
                self._drop[kind](event)

    # -- reading --------------------------------------------------------------------------------

    def node(self, name: str) -> GpuNode | None:
        """The node's ledger as last seen, or None."""
        return self._nodes.get(name)

    def pool_of(self, node: str) -> str:
        """The node's pool; empty for a node without GpuNode."""
        return self._pool_of.get(node, "")

    def node_class(self, name: str) -> NodeClass | None:
        """The class of the node; None for a node without GpuNode."""
        ix = self.cards.ix.get(name)
        return None if ix is None else self._class_at(ix, self.pool_of(name))

    def rows_of(self, uid: str) -> Mapping[str, Row]:
        """The pod's rows by node."""
        return self._rows.held_of(uid)

    def row(self, uid: str, node: str) -> Row | None:
        """The pod's row on `node`, or None."""
        return self._rows.held_of(uid).get(node)

    def use_of(self, project: str, pool: str) -> int:
        """Milli-GPU that the project holds in the pool, by rows and by rows being written."""
        key = project, pool
        return self._uses[key] + self._promised[key]

    def department_of(self, project: str) -> str:
        """The project's department; empty if it names none that exists."""
        known = self.queues.projects.get(project)
        name = known.spec.department if known else ""
        return name if name in self.queues.departments else ""

    def use_of_department(self, department: str, pool: str) -> int:
        """Milli-GPU that all its projects hold in the pool."""
        return sum(self.use_of(project, pool) for project in self._projects_of.get(department, ()))

    @contextmanager
    def promised(self, project: str, pool: str, milli: int) -> Iterator[None]:
        """Count `milli` for the project while its row is being written."""
        self._promised[project, pool] += milli
        try:
            yield
        finally:
            self._promised[project, pool] -= milli

    def fair_share_of(self, queue: str, pool: str) -> int:
        """The fair share last published for the queue in the pool, in milli-GPU; 0 if none."""
        return self._fair_shares.get(queue, {}).get(pool, 0)

    def is_healthy(self, node: str, row: Row) -> bool:
        """Whether every card of the row exists and is healthy."""
        known = self._nodes.get(node)
        if known is None:
            return False
        healthy = {d.index for d in known.status.devices if d.health == "Healthy"}
        return all(card.index in healthy for card in row.cards)

    # -- changes --------------------------------------------------------------------------------

    def _set_project(self, project: GpuProject) -> None:
        name = project.metadata.name
        self._leave_department(name)
        self._projects_of.setdefault(project.spec.department, set()).add(name)
        self.queues.set_project(project)
        self._fair_shares[name] = _read_fair_shares(project)

    def _drop_project(self, gone: Removed) -> None:
        self._leave_department(gone.name)
        self.queues.drop_project(gone.name)
        self._fair_shares.pop(gone.name, None)

    def _set_department(self, department: GpuDepartment) -> None:
        self.queues.set_department(department)
        queue = department_queue(department.metadata.name)
        self._fair_shares[queue] = _read_fair_shares(department)

    def _drop_department(self, gone: Removed) -> None:
        self.queues.drop_department(gone.name)
        self._fair_shares.pop(department_queue(gone.name), None)

    def _set_pool(self, pool: GpuNodePool) -> None:
        if self.queues.set_pool(pool):
            self._count_again()

    def _drop_pool(self, gone: Removed) -> None:
        self.queues.drop_pool(gone.name)
        self._count_again()

    def _leave_department(self, project: str) -> None:
        known = self.queues.projects.get(project)
        if known is not None:
            self._projects_of.get(known.spec.department, set()).discard(project)

    def _set_node(self, node: GpuNode) -> None:
        name = node.metadata.name
        before = self._nodes.get(name)
        if before is not None:
            if _is_older(node, before):
                return
            self._count(before, -1)
        self._nodes[name] = node
        self._pool_of[name] = self._find_pool(node)
        self._count(node, 1)
        self._rows.set_rows(name, node.spec.rows)
        self._classify(self.cards.set_node(node), self._pool_of[name])

    def _drop_node(self, gone: Removed) -> None:
        name = gone.name
        before = self._nodes.get(name)
        if before is None or before.metadata.uid != gone.uid:
            return
        self._count(before, -1)
        del self._nodes[name], self._pool_of[name]
        self._rows.set_rows(name, ())
        self.cards.drop_node(name)

    def _find_pool(self, node: GpuNode) -> str:
        labels = node.metadata.labels or {}
        return labels.get(LABEL_NODE_POOL) or self.queues.pool_of(labels)

    def _count(self, node: GpuNode, sign: int) -> None:
        pool = self._pool_of[node.metadata.name]
        for row in node.spec.rows:
            self._uses[row.project, pool] += sign * row.milli

    def _count_again(self) -> None:
        """Assign all nodes to pools again. Costs all rows; node pools change rarely."""
        self._uses.clear()
        for name, node in self._nodes.items():
            self._pool_of[name] = self._find_pool(node)
            self._classify(self.cards.ix[name], self._pool_of[name])
            self._count(node, 1)

    def _class_at(self, ix: int, pool: str) -> NodeClass:
        return NodeClass(pool, self.cards.card_mib[ix], self.cards.model[ix])

    def _classify(self, ix: int, pool: str) -> None:
        same = self._class_at(ix, pool)
        if ix == len(self.class_of):
            self.class_of.append(0)
        self.class_of[ix] = self.classes.setdefault(same, len(self.classes))


def _is_older(node: GpuNode, known: GpuNode) -> bool:
    """Whether `known` is a later version of the same object."""
    meta, other = node.metadata, known.metadata
    return meta.uid == other.uid and is_older(meta.resource_version, other.resource_version)


def _read_fair_shares(queue: GpuProject | GpuDepartment) -> dict[str, int]:
    shares = {}
    for pool in queue.status.node_pools:
        try:
            shares[pool.name] = parse_gpus(pool.fair_share)
        except UnitError:
            continue
    return shares
