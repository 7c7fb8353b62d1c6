"""Which levels of nearness nodes have, and which of them a constraint is about."""

from collections.abc import Mapping

from extender.api.kinds import GpuTopology, TopologyConstraint
from extender.api.reasons import Reason, Refused
from extender.state.model import TopologyRule


class Topologies:
    """Every GpuTopology by name. The map of levels is never changed after it was handed out."""

    def __init__(self) -> None:
        self.known: dict[str, GpuTopology] = {}
        self.levels: Mapping[str, tuple[str, ...]] = {}

    def set_topology(self, topology: GpuTopology) -> bool:
        """Take the topology; returns whether what it says is new."""
        name = topology.metadata.name
        self.known[name] = topology
        levels = tuple(level.node_label for level in topology.spec.levels)
        if self.levels.get(name) == levels:
            return False
        self.levels = dict(sorted({**self.levels, name: levels}.items()))
        return True

    def drop_topology(self, name: str) -> None:
        """Forget the topology: work that asks for it waits."""
        self.known.pop(name, None)
        self.levels = {key: levels for key, levels in self.levels.items() if key != name}

    def rule_of(self, asked: TopologyConstraint) -> TopologyRule | Refused | None:
        """The rule by its topology's name, None when nothing is asked, or what does not exist."""
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
