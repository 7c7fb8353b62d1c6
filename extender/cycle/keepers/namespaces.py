"""Keeps the label `ballast.dev/managed` on exactly the namespaces that a GpuProject lists.

Admission policies that guard GPUs select namespaces by this label, so they hold even while every
Ballast process is down. If no project lists a namespace, another value of the label on it is left
alone.
"""

from collections.abc import Callable, Collection

from extender.api.events import Event, Removed, Upserted
from extender.api.names import LABEL_MANAGED, MANAGED, SYSTEM_NAMESPACES
from extender.api.objects import Namespace
from extender.cycle.writes import write_all
from extender.kube.client import Client
from extender.kube.resources import NAMESPACES


class NamespaceKeeper:
    """The label's value on every existing namespace; `deliver` and `keep` update it."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when a namespace is added or its label changes."""
        self._wake = wake
        self._labels: dict[str, str] = {}

    def deliver(self, event: Event) -> None:
        """Apply an event from the reflector of namespaces."""
        match event:
            case Upserted(Namespace() as namespace):
                name, value = namespace.metadata.name, namespace.metadata.label(LABEL_MANAGED)
                if self._labels.get(name) != value:
                    self._labels[name] = value
                    self._wake()
            case Removed():
                self._labels.pop(event.name, None)
            case _:
                pass

    def changes(self, listed: Collection[str]) -> dict[str, bool]:
        """Namespaces to write, and whether the label must be set or removed; O(namespaces)."""
        changed = {
            name: True
            for name in listed
            if self._labels.get(name, MANAGED) != MANAGED and name not in SYSTEM_NAMESPACES
        }
        for name, value in self._labels.items():
            if value == MANAGED and (name not in listed or name in SYSTEM_NAMESPACES):
                changed[name] = False
        return changed

    async def keep(self, client: Client, listed: Collection[str]) -> None:
        """Label the `listed` namespaces; a failed write is logged and tried again later."""
        changes = self.changes(listed)
        writes = (self._write(client, name, is_managed) for name, is_managed in changes.items())
        await write_all(writes, what="label of a namespace")

    async def _write(self, client: Client, name: str, is_managed: bool) -> None:
        value = MANAGED if is_managed else None
        # The result comes by the watch: an answer may be older than the last event.
        await client.merge_patch(NAMESPACES, name, {"metadata": {"labels": {LABEL_MANAGED: value}}})
