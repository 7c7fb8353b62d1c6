"""The levels of each GpuTopology, and which of them a constraint names."""

from collections.abc import Mapping

from extender.api.kinds import GpuTopology, TopologyConstraint
from extender.api.reasons import Reason, Refused
from extender.state.model import TopologyRule


class Topologies:
    """Every GpuTopology by name. A returned map of levels never changes."""

    def __init__(self) -> None:
        self.known: dict[str, GpuTopology] = {}
        self.levels: Mapping[str, tuple[str, ...]] = {}

    def set_topology(self, topology: GpuTopology) -> bool:
        """Store the topology; returns whether its levels are new."""
        name = topology.metadata.name
        self.known[name] = topology
        levels = tuple(level.node_label for level in topology.spec.levels)
        if self.levels.get(name) == levels:
            return False
        self.levels = dict(sorted({**self.levels, name: levels}.items()))
        return True

    def drop_topology(self, name: str) -> None:
        """Forget the topology; workloads that name it stay pending."""
        self.known.pop(name, None)
        self.levels = {key: levels for key, levels in self.levels.items() if key != name}

    def rule_of(self, asked: TopologyConstraint) -> TopologyRule | Refused | None:
        """The rule of the constraint; None if it names no level, Refused if no topology has it."""
        required, preferred = asked.required_topology_level, asked.preferred_topology_level
        wanted = [level for level in (required, preferred) if level]
        if not wanted:
            return None
        if asked.topology:
            having = [asked.topology] if asked.topology in self.levels else []
            if not having:
                detail = f"topology {asked.topology!r} does not exist"
                return Refused(Reason.UNKNOWN_TOPOLOGY, detail)
        else:
            having = list(self.levels)
        having = [name for name in having if set(wanted) <= set(self.levels[name])]
        levels = " and ".join(wanted)
        if not having:
            where = f"topology {asked.topology}" if asked.topology else "no topology"
            verb = "does not have" if asked.topology else "has"
            detail = f"{where} {verb} the level {levels}"
            return Refused(Reason.UNKNOWN_TOPOLOGY, detail)
        if len(having) > 1:
            detail = f"topologies {', '.join(having)} have the level {levels}: name one of them"
            return Refused(Reason.UNKNOWN_TOPOLOGY, detail)
        return TopologyRule(having[0], required or None, preferred or None)
