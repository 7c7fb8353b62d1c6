"""Nodes: their cards by the ledger, their hosts, and what pods hold of both."""

from collections.abc import Iterable, Mapping

from msgspec import structs

from extender.api.demand import MAX_DEVICES
from extender.api.kinds import CardShare, Device, ForeignHold, GpuNode, Row
from extender.api.objects import Node
from extender.state.fleet.device_cards import DeviceCards
from extender.state.fleet.foreign import ForeignPods, beyond_rows, merged_holds
from extender.state.fleet.host_holds import HostHolds
from extender.state.fleet.inventory import Differences, Inventory, Known
from extender.state.model import Bystanders
from extender.state.nodes import COLUMNS, CardTable, NodeFacts, NodeTable
from extender.state.pods.facts import PodFacts
from extender.state.pods.host_hold import HostHold
from extender.state.problems import Problem
from extender.state.queues import Queues


class Fleet:
    """The node table, updated on reading for the nodes that were touched since the last read."""

    def __init__(self, queues: Queues) -> None:
        self.gpu_nodes: dict[str, GpuNode] = {}
        self.foreign = ForeignPods()
        self.devices = DeviceCards()
        self._queues = queues
        self._inventory = Inventory()
        self._holds = HostHolds()
        self._nodes = NodeTable()
        self._touched: set[str] = set()
        #: Cards of bound pods without a row, by node and UID.
        self._lost: dict[str, dict[str, tuple[CardShare, ...]]] = {}
        #: By node, the result of `_beyond_on`.
        self._beyond: dict[str, dict[str, int]] = {}
        #: Goes up when a node comes, goes, or changes its pool, readiness or card size.
        self.n_reshaped = 0
        self._n_changes = 0

    # -- changes -----------------------------------------------------------------------------

    def set_host(self, node: Node) -> None:
        """Store the Node."""
        if self._inventory.set_host(node):
            self._touched.add(node.metadata.name)

    def drop_host(self, name: str, uid: str) -> None:
        """Forget the Node of this UID."""
        facts = self._inventory.hosts.get(name)
        if facts is not None and facts.uid == uid:
            self._inventory.drop_host(name)
            self._touched.add(name)

    def set_ledger(self, name: str, gpu_node: GpuNode | None) -> None:
        """Store the node's ledger; None when it is deleted."""
        if gpu_node is None:
            del self.gpu_nodes[name]
        else:
            self.gpu_nodes[name] = gpu_node
        self._touched.add(name)

    def set_hold(self, uid: str, hold: HostHold | None) -> None:
        """Replace what the pod holds of its node besides cards."""
        self._touched.update(self._holds.set_hold(uid, hold))

    def set_foreign(self, facts: PodFacts) -> None:
        """Store a pod that holds cards of its node without a row."""
        before = self.foreign.facts.get(facts.uid)
        version = before.resource_version if before else ""
        if before != structs.replace(facts, resource_version=version):
            self.drop_foreign(facts.uid)
            self._touched.add(facts.node)
        self.foreign.set_pod(facts)

    def drop_foreign(self, uid: str) -> None:
        """The pod is gone, or no longer foreign; does nothing if it was not foreign."""
        if node := self.foreign.drop_pod(uid):
            self._touched.add(node)

    def set_lost(self, node: str, uid: str, cards: tuple[CardShare, ...]) -> None:
        """Set the cards of a bound pod that has no row on the node; empty once it has its row."""
        lost = self._lost.get(node, {})
        if lost.get(uid, ()) == cards:
            return
        if cards:
            self._lost.setdefault(node, {})[uid] = cards
        else:
            del lost[uid]
            if not lost:
                del self._lost[node]
        self._touched.add(node)

    def set_next_hold(self, node: str, uid: str, row: Row | None) -> None:
        """Replace the reservation on `node` for the successor of a pod that is moved there."""
        move = row.move if row else None
        hold = None
        if row is not None and move is not None:
            counted = tuple(sorted(row.counted.items()))
            hold = HostHold(node, move.cpu_milli, move.memory_mib, counted)
        self._touched.update(self._holds.set_hold(_next_key(node, uid), hold))

    def touch(self, names: Iterable[str]) -> None:
        """What DRA drivers publish or allocate on these nodes may have changed."""
        self._touched.update(names)

    def touch_all(self) -> None:
        """Nodes may have changed pools."""
        self._touched.update(self.gpu_nodes)

    # -- questions ---------------------------------------------------------------------------

    def table(self) -> NodeTable:
        """The node table as it is now. Callers must not change it."""
        self.refresh()
        return self._nodes

    @property
    def n_changes(self) -> int:
        """Goes up when anything changes that a decision reads of a node with GPUs, including a node
        with GPUs that has no ledger yet."""
        self.refresh()
        return self._n_changes

    def differences(self) -> Differences:
        """How Nodes and GpuNodes differ."""
        self.refresh()
        return self._inventory.differences()

    def bystanders(self, namespaces: Iterable[str]) -> tuple[Bystanders, ...]:
        """The bound pods without a row in these namespaces, where their Nodes are known."""
        hosts = self._inventory.hosts
        return tuple(
            Bystanders(namespace, labels, hosts[node].labels, n)
            for namespace in sorted(namespaces)
            for (labels, node), n in sorted(self._holds.without_row(namespace).items())
            if node in hosts
        )

    def problems(self) -> Iterable[Problem]:
        """Labels and figures of nodes that are not understood."""
        return self._inventory.problems()

    def refresh(self) -> None:
        """Bring the table up to date, in name order: equal histories give equal tables."""
        for name in sorted(self._touched):
            gpu_node = self.gpu_nodes.get(name)
            known = self._known_of(name)
            had_no_ledger = self._inventory.lacks_ledger(name)
            self._inventory.compare(name, gpu_node, known)
            self._beyond.pop(name, None)
            if beyond := self._beyond_on(name):
                self._beyond[name] = beyond
            before = self._shape_of(name)
            if gpu_node is None:
                self._nodes.drop_node(name)
            else:
                self._nodes.set_cards(_with_foreign(gpu_node, known.foreign))
                self._hold_lost(name, self._nodes.cards)
                self._nodes.set_node(self._facts_of(name))
            self.n_reshaped += self._shape_of(name) != before
            has_gpus = before is not None or gpu_node is not None
            lacks_ledger = had_no_ledger or self._inventory.lacks_ledger(name)
            self._n_changes += has_gpus or lacks_ledger
        self._touched.clear()

    def _shape_of(self, name: str) -> tuple[str, int, int] | None:
        ix, nodes = self._nodes.ix_of(name), self._nodes
        if ix is None:
            return None
        return nodes.pool[ix], nodes.is_ready[ix], nodes.cards.card_mib[ix]

    def validate(self, places: Mapping[str, str]) -> None:
        """Assert that everything equals a rebuild from scratch; `places` are the pods' nodes."""
        self.refresh()
        cards = CardTable()
        for gpu_node in self.gpu_nodes.values():
            foreign = self._foreign_on(gpu_node.metadata.name)
            cards.set_node(_with_foreign(gpu_node, foreign))
            self._hold_lost(gpu_node.metadata.name, cards)
        assert self._nodes.cards.ix.keys() == self.gpu_nodes.keys()
        for name, ix in cards.ix.items():
            have_ix = self._nodes.cards.ix[name]
            assert cards.free_of(ix) == self._nodes.cards.free_of(have_ix), name
            self._assert_host(name, have_ix)
        holds = self._holds.holds()
        for uid, place in places.items():
            hold = holds.get(uid)
            assert (hold.node if hold else "") == place, uid
        moves = {
            _next_key(name, row.uid)
            for name, gpu_node in self.gpu_nodes.items()
            for row in gpu_node.spec.rows
            if row.move is not None
        }
        assert {key for key in holds if "@" in key} == moves
        self._holds.validate()
        self.foreign.validate()
        fresh = Inventory()
        fresh.hosts = self._inventory.hosts
        for name in fresh.hosts.keys() | self.gpu_nodes.keys():
            fresh.compare(name, self.gpu_nodes.get(name), self._known_of(name))
            assert self._beyond.get(name, {}) == self._beyond_on(name), name
        assert fresh.differences() == self._inventory.differences()

    def _hold_lost(self, name: str, cards: CardTable) -> None:
        """Hold the cards of bound pods until their missing row is restored. Those of pods with
        known claims are held already."""
        if lost := self._lost.get(name):
            by_claim = {each.uid for each in self.devices.held_on(name)}
            for uid in lost.keys() - by_claim:
                cards.hold(cards.ix[name], lost[uid])

    def _foreign_on(self, name: str) -> tuple[ForeignHold, ...]:
        """What foreign pods hold of the node's cards, at most all of them."""
        gpu_node = self.gpu_nodes.get(name)
        if gpu_node is None:
            return ()
        pods, claimed = self.foreign.holds_on(name), self.devices.held_on(name)
        return merged_holds(pods, claimed, gpu_node.spec.rows, gpu_node.status.devices)

    def beyond_rows(self) -> Mapping[str, int]:
        """How many cards a pod's claims hold beyond its row, by UID. Includes pods without a row
        whose claims the webhook has read."""
        self.refresh()
        return {uid: n for held in self._beyond.values() for uid, n in held.items()}

    def _beyond_on(self, name: str) -> dict[str, int]:
        gpu_node = self.gpu_nodes.get(name)
        rows = gpu_node.spec.rows if gpu_node else []
        uids, claimed = {row.uid for row in rows}, self.devices.held_on(name)
        found = beyond_rows(claimed, rows) if claimed else ()
        return {
            each.uid: len(each.devices)
            for each in found
            if each.uid in uids or self.foreign.has_read_claims(each.uid)
        }

    def _known_of(self, name: str) -> Known:
        return Known(self.pool_of(name), self._foreign_on(name), self._published_on(name))

    def _published_on(self, name: str) -> tuple[Device, ...] | None:
        """The cards that DRA drivers publish for the node; None if no driver ever published any.

        If a driver stops publishing, its cards become unhealthy: it may be in an upgrade, and no
        other program allocates them. On a node whose device plugin has cards they are removed.
        """
        cards, gpu_node = self.devices.cards_of(name), self.gpu_nodes.get(name)
        last = [each for each in gpu_node.status.devices if each.device] if gpu_node else []
        if cards or not last:
            return _with_known_indices(cards, last) or None
        host = self._inventory.hosts.get(name)
        if host is not None and host.has_plugin_cards:
            return ()
        return tuple(structs.replace(each, health="Unhealthy") for each in last)

    def pool_of(self, name: str) -> str:
        """The node's pool; empty while its Node is not known."""
        host = self._inventory.hosts.get(name)
        return self._queues.pool_of(host.labels) if host else ""

    def _facts_of(self, name: str) -> NodeFacts:
        host = self._inventory.hosts.get(name)
        if host is None:
            return NodeFacts(name, is_ready=False, free_pods=0)
        taken = self._holds.taken(name)
        return NodeFacts(
            name=name,
            pool=self._queues.pool_of(host.labels),
            labels=host.labels,
            taints=host.taints,
            # Without its device plugin, kubelet admits no pod with GPUs. A DRA driver needs none.
            is_ready=host.is_ready and (not host.lacks_plugin or bool(self.devices.cards_of(name))),
            free_cpu_milli=host.cpu_milli - taken.cpu_milli,
            free_memory_mib=host.memory_mib - taken.memory_mib,
            free_pods=host.n_pods - taken.n_pods,
            cpu_milli=host.cpu_milli,
            memory_mib=host.memory_mib,
            counted=host.counted,
            free_counted={
                resource: n - taken.counted.get(resource, 0) for resource, n in host.counted.items()
            },
            offers=self.devices.offers_of(name),
            share_steps=self.devices.share_steps_of(name),
            stays=host.stays or taken.n_lasting > 0,
        )

    def _assert_host(self, name: str, ix: int) -> None:
        facts = self._facts_of(name)
        for column in COLUMNS:
            have, want = getattr(self._nodes, column)[ix], getattr(facts, column)
            assert (have or None) == (want or None), f"{name}: {column}: {have} is not {want}"


def _with_foreign(gpu_node: GpuNode, foreign: Iterable[ForeignHold]) -> GpuNode:
    """The GpuNode with these holds of pods without a row."""
    return structs.replace(gpu_node, status=structs.replace(gpu_node.status, foreign=list(foreign)))


def _with_known_indices(cards: Iterable[Device], last: Iterable[Device]) -> tuple[Device, ...]:
    """The cards by index. A card in `last` keeps its index there, since rows name the index."""
    place = {each.device: each.index for each in last}
    free = iter(sorted(set(range(MAX_DEVICES)) - set(place.values())))
    placed = []
    for card in cards:
        index = place.get(card.device, -1)
        if index < 0 and (index := next(free, -1)) < 0:
            continue
        placed.append(structs.replace(card, index=index))
    return tuple(sorted(placed, key=lambda card: card.index))


def _next_key(node: str, uid: str) -> str:
    """A key among the holds that equals no UID."""
    return f"{uid}@{node}"
