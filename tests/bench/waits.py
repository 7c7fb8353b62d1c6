"""How long pods are pending, as seen by a watcher of pods."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.api.events import Event, Removed, Upserted
from extender.api.objects import Pod


@dataclass(slots=True)
class Times:
    """Monotonic seconds by pod name: when it was created here, seen bound, and seen deleted."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)

    def note(self, event: Event) -> None:
        """Process an event of the watcher."""
        match event:
            case Upserted(obj=Pod() as pod):
                if pod.spec.node_name:
                    self.bound.setdefault(pod.metadata.name, time.perf_counter())
            case Removed(name=name):
                self.gone.setdefault(name, time.perf_counter())
            case _:
                pass

    def waits(self, names: Iterable[str]) -> list[float]:
        """Seconds from creation to binding; a pod that is not bound counts until now."""
        now = time.perf_counter()
        return [self.bound.get(name, now) - self.created[name] for name in names]
