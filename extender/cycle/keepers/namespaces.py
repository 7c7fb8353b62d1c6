"""Keeps the label `ballast.dev/managed` on exactly the namespaces that a GpuProject lists.

Policies in the API server that guard GPUs select namespaces by this label, so they hold while every
program of ours is down. A namespace that no project lists may carry another value of the label; it
is left alone.
"""

from collections.abc import Callable, Collection

from extender.api.events import Event, Removed, Upserted
from extender.api.names import LABEL_MANAGED, MANAGED, SYSTEM_NAMESPACES
from extender.api.objects import Namespace
from extender.cycle.writes import write_all
from extender.kube.client import Client
from extender.kube.resources import NAMESPACES


class NamespaceKeeper:
    """The namespaces that exist, by the value of the label; `deliver` and `keep` change it."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when a namespace comes or its label changes."""
        self._wake = wake
        self._labels: dict[str, str] = {}

    def deliver(self, event: Event) -> None:
        """Take what a reflector of namespaces tells."""
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
        """Namespaces that need another label, and whether it must be there; O(namespaces)."""
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
        """Label the namespaces that are `listed`; what fails is logged and tried again later."""
        changes = self.changes(listed)
        writes = (self._write(client, name, is_managed) for name, is_managed in changes.items())
        await write_all(writes, what="label of a namespace")

    async def _write(self, client: Client, name: str, is_managed: bool) -> None:
        value = MANAGED if is_managed else None
        # The watch tells the result: an answer may be older than what the watch has told.
        await client.merge_patch(NAMESPACES, name, {"metadata": {"labels": {LABEL_MANAGED: value}}})
