"""How long pods wait, as a watcher of them sees it."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.api.events import Event, Removed, Upserted
from extender.api.objects import Pod


@dataclass(slots=True)
class Times:
    """Monotonic seconds by pod name: when it was created here, seen bound, seen gone."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)

    def note(self, event: Event) -> None:
        """Take what a watcher of the pods sees."""
        match event:
            case Upserted(obj=Pod() as pod):
                if pod.spec.node_name:
                    self.bound.setdefault(pod.metadata.name, time.perf_counter())
            case Removed(name=name):
                self.gone.setdefault(name, time.perf_counter())
            case _:
                pass

    def waits(self, names: Iterable[str]) -> list[float]:
        """From creation to being bound; a pod that is not bound yet counts until now."""
        now = time.perf_counter()
        return [self.bound.get(name, now) - self.created[name] for name in names]
