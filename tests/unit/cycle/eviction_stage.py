"""An evictor with an API server that answers as a test says, and the victims of one workload."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.api.reasons import Reason
from extender.cycle.evictions.evictor import Evictor
from extender.cycle.pods.writer import PodWriter
from extender.kube.client import Evicted, EvictionRefused, Gone
from extender.kube.errors import NotFound, Unavailable
from extender.policy.plan import Admission, Eviction, Placement, Plan
from extender.state.cluster import ClusterState
from extender.state.snapshot import Snapshot
from extender.usage.meter import UsageMeter
from tests.support.builders import gpu_node, pod, project, row, whole


@dataclass
class ApiServer:
    """The network edge: answers evictions after `takes_s` seconds, with a refusal for some."""

    takes_s: float = 1.0
    refused: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    #: The grace period that each eviction states; None: the pod's own.
    graces: list[int | None] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    #: Pods as they are once the API server answers again, after `away_s`; requests for their
    #: evictions time out, for those in `answered_again` only the first.
    left: dict[str, Pod | None] = field(default_factory=dict)
    answered_again: set[str] = field(default_factory=set)
    away_s: float = 30.0
    under_way: int = 0
    most_under_way: int = 0

    async def evict(self, _namespace: str, name: str, **options: Any) -> Any:
        self.asked.append(name)
        self.graces.append(options.get("grace_s"))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.takes_s)
        self.under_way -= 1
        is_answered = name in self.answered_again and self.asked.count(name) > 1
        if name in self.left and not is_answered:
            raise Unavailable("no answer")
        if name in self.gone:
            return Gone()
        return EvictionRefused(0.0, "no") if name in self.refused else Evicted()

    async def get(self, _: object, name: str, _namespace: str) -> Pod:
        if asyncio.get_running_loop().time() < self.away_s:
            raise Unavailable("etcd is away")
        if (found := self.left[name]) is None:
            raise NotFound(name)
        return found

    async def strategic_patch(self, *_: object) -> None:
        pass

    async def delete(self, _: object, name: str, *_more: object, **_options: object) -> None:
        self.deleted.append(name)


class Events:
    """Takes events, and keeps the names that they are about and what they say."""

    def __init__(self) -> None:
        self.about: list[str] = []
        self.notes: list[str] = []

    def record(self, regarding: Any, _reason: object, note: str, *_: object) -> None:
        self.about.append(regarding.name)
        self.notes.append(note)


class Stage:
    """Pods `v0`, `v1`, ... of team-a run on n1; `needy` has places nominated where they are."""

    def __init__(self, n_victims: int, api: ApiServer, gang: str = "") -> None:
        self.state, self.api = ClusterState(), api
        self.needy = pod("needy").needs(1000).build()
        built = [pod(f"v{at}").needs(1000) for at in range(n_victims)]
        self.victims = [(each.gang(gang) if gang else each).bound("n1").build() for each in built]
        rows = [row(each, whole(at), "bound") for at, each in enumerate(self.victims)]
        nominated = row(self.needy, whole(0), "nominated")
        ledger = gpu_node("n1", n_victims).holds(*rows, nominated).build()
        for obj in (project("team-a").build(), *self.victims, self.needy, ledger):
            self.state.apply(Upserted(obj))
        writer = PodWriter(api, self.state)  # type: ignore[arg-type]
        self.events = Events()
        self.meter = UsageMeter(self.state.user_of)
        self.evictor = Evictor(self.state, writer, self.events, self.meter)  # type: ignore[arg-type]

    def start(self, without_rows: frozenset[str] = frozenset()) -> None:
        """Queue the eviction of all victims for `needy`, unless it is `without_rows`."""
        snapshot, plan = self.plan()
        self.evictor.start(plan, snapshot, set(without_rows))

    def plan(self) -> tuple[Snapshot, Plan]:
        snapshot = self.state.snapshot(1_000)
        of = {p.uid: w for w in snapshot.workloads.values() for p in w.pods}
        needy = of[self.needy.metadata.uid]
        (seat,) = needy.pods
        plan = Plan(
            admissions=[Admission(needy, (Placement(seat, "n1", seat.cards),), "nominated")]
        )
        for victim in self.victims:
            view = self.state.pod(victim.metadata.uid)
            assert view is not None
            key = of[view.uid].key
            plan.evictions.append(Eviction(view, key, Reason.RECLAIMED, needy.key, ""))
        return snapshot, plan

    def is_leaving(self, victim: Pod) -> bool:
        view = self.state.pod(victim.metadata.uid)
        return view is not None and view.is_terminating

    def drop(self, gone: Pod) -> None:
        meta = gone.metadata
        self.state.apply(Removed(Pod, meta.uid, meta.namespace, meta.name))
