"""Departments, NodePools, Topologies, Projects and priority classes as last seen, by name.

Look-ups never block. The catalog may lag behind the API server, so an object that is missing here
leads to a warning ("not there yet"), never to a refusal.
"""

from typing import Any, Final

from extender.api import names
from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import GpuDepartment, GpuNodePool, GpuProject, GpuTopology
from extender.api.objects import PriorityClass

WATCHED: Final = (GpuDepartment, GpuProject, GpuNodePool, GpuTopology, PriorityClass)


class Catalog:
    """All objects of `WATCHED`. Only `deliver` changes them; the dicts are for reading."""

    def __init__(self) -> None:
        self.departments: dict[str, GpuDepartment] = {}
        self.projects: dict[str, GpuProject] = {}
        self.pools: dict[str, GpuNodePool] = {}
        self.topologies: dict[str, GpuTopology] = {}
        self.classes: dict[str, PriorityClass] = {}
        self._synced: set[type] = set()
        self._by_kind: dict[type, dict[str, Any]] = {
            GpuDepartment: self.departments,
            GpuProject: self.projects,
            GpuNodePool: self.pools,
            GpuTopology: self.topologies,
            PriorityClass: self.classes,
        }

    @property
    def is_synced(self) -> bool:
        """Whether every kind has been listed once."""
        return self._synced.issuperset(WATCHED)

    @property
    def class_names(self) -> set[str]:
        """The priority classes that a pod may name: ours, their aliases, and those that exist."""
        return {*names.PRIORITY_CLASSES, *names.CLASS_ALIASES, *self.classes}

    def deliver(self, event: Event) -> None:
        """Applies an event of a reflector."""
        match event:
            case Upserted(obj) if type(obj) in self._by_kind:
                self._by_kind[type(obj)][obj.metadata.name] = obj
            case Removed() if event.kind in self._by_kind:
                known = self._by_kind[event.kind]
                # An object of the same name may be re-created before this removal arrives.
                if event.name in known and known[event.name].metadata.uid == event.uid:
                    del known[event.name]
            case Synced():
                self._synced.add(event.kind)
