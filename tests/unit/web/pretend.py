"""Answers for the pages, made in memory; tests with an API server are in integration."""

import asyncio

from extender.api.kinds import GpuNode, GpuNodeSpec, GpuNodeStatus, GpuProject, GpuProjectSpec
from extender.api.ledger import CardShare, Device, Row
from extender.api.objects import ObjectMeta, Pod
from extender.view.answers import (
    AsOf,
    Change,
    Check,
    Explanation,
    Forecast,
    Metadata,
    Place,
    QueueFigures,
    QueueList,
    ShareList,
    Simulation,
    SimulationSpec,
    SimulationStatus,
    Waiting,
    WayOut,
)
from extender.web.evictions import Event, Fate
from extender.web.questions import NoAnswerError
from extender.web.usage import UsageRecord

NOW = AsOf("2026-01-01T00:00:00Z", "8871")


def waiting(n: int, *, workload: str = "team-a/train") -> list[Waiting]:
    """`n` waiting workloads."""
    return [
        Waiting(
            position=i + 1,
            project="team-a",
            request="8",
            pods=4,
            reason="OverFairShare" if i % 2 else "InsufficientGpu",
            workload=f"{workload}-{i}",
            user="ann",
            work_kind="training",
            priority=50,
            waits_since="2026-01-01T00:00:00Z",
            forecast=Forecast("no forecast", message="nothing says how long it runs"),
            message="needs 8 GPUs on one node in each of 4 pods; most free on one is 1 (gpu-07)",
        )
        for i in range(n)
    ]


def node(
    name: str, *, cards: int = 8, held: dict[int, int] | None = None, sick: int = -1
) -> GpuNode:
    """A node with `held` milli of some cards, each by one pod, and one card that is sick."""
    rows = [
        Row(
            uid=f"{name}-{index}",
            namespace="team-a",
            name=f"{name}-pod-{index}",
            project="team-a",
            cards=[CardShare(index=index, milli=milli, memory_mib=1)],
            state="bound",
        )
        for index, milli in (held or {}).items()
    ]
    devices = [
        Device(
            index=i, memory_mib=81920, model="H100", health="Unhealthy" if i == sick else "Healthy"
        )
        for i in range(cards)
    ]
    return GpuNode(
        metadata=ObjectMeta(name=name),
        spec=GpuNodeSpec.of(rows),
        status=GpuNodeStatus(devices=devices, cards=cards),
    )


class Pretend:
    """What the pages ask, answered from lists. `refused` is raised by every question."""

    def __init__(self) -> None:
        self.as_of = NOW
        self.items = waiting(3)
        self.ledger = [node("gpu-00", held={0: 1000, 1: 250}), node("gpu-01", sick=3)]
        self.events: list[Event] = []
        self.fates: dict[str, Fate] = {}
        self.running: list[Pod] = []
        #: The namespaces that the one project lists.
        self.listed = ["team-a"]
        self.records: list[UsageRecord] = []
        self.asked: list[str] = []
        self.spec: SimulationSpec | None = None
        self.changes: list[Change] = []
        self.refused: NoAnswerError | None = None
        #: Namespaces whose pods the user may not see.
        self.hidden: set[str] = set()
        #: What is tried is told once this is set.
        self.trying = asyncio.Event()
        self.trying.set()

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.refused:
            raise self.refused

    async def queue(self, namespace: str, *, is_own_only: bool = False) -> QueueList:
        """The waiting workloads."""
        self._ask(f"queue {namespace}{' own' if is_own_only else ''}")
        is_own = f"{namespace}/" if is_own_only else ""
        items = [each for each in self.items if each.workload.startswith(is_own)]
        return QueueList(as_of=self.as_of, items=items)

    async def explanation(self, namespace: str, name: str, *, is_tried: bool) -> Explanation:
        """One workload that waits."""
        self._ask(f"explanation {namespace}/{name}")
        if is_tried:
            await self.trying.wait()
            self._ask("tried")
        told = Explanation(
            metadata=Metadata(name, namespace),
            state="waits",
            workload=f"{namespace}/{name}",
            pods=4,
            waiting_pods=4,
            request="4",
            work_kind="training",
            priority=50,
            is_preemptible=True,
            as_of=NOW,
            project="team-a",
            reason="OverFairShare",
            message="all 16 GPUs are taken",
            place=Place(1, 2, 3, 4),
            queue=_figures("team-a"),
            forecast=Forecast("promised", NOW.time, NOW.time, "within quota", 9, 7),
        )
        if is_tried:
            told.checks = [
                Check("room now", "no", "none free"),
                Check("moving others", "no", "none free"),
                Check("preemption", "not tried", "off"),
            ]
            fewer = "2 pods or fewer must start together"
            told.ways_out = [WayOut(fewer, "2 GPUs of <b>search</b> taken")]
            told.not_tried = ["more quota"]
        return told

    async def shares(self) -> ShareList:
        """A department and a project that borrows."""
        self._ask("shares")
        return ShareList(as_of=NOW, items=[_figures("team-a"), _figures("department/research")])

    async def nodes(self) -> list[GpuNode]:
        """The ledger."""
        self._ask("nodes")
        return self.ledger

    async def projects(self) -> list[GpuProject]:
        """One project with its namespaces."""
        spec = GpuProjectSpec(department="research", namespaces=self.listed)
        return [GpuProject(metadata=ObjectMeta(name="team-a"), spec=spec)]

    async def readable(self, namespaces: list[str]) -> list[str]:
        """All of them."""
        self._ask("readable")
        return namespaces

    async def pods(self, namespace: str) -> list[Pod]:
        """What was put into `running`."""
        self._ask(f"pods {namespace}")
        if namespace in self.hidden:
            raise NoAnswerError(f"pods of {namespace} are forbidden", 403)
        return self.running

    async def usage(self, month: str) -> list[UsageRecord]:
        """What was put into `records`."""
        self._ask(f"usage {month}")
        return self.records

    async def simulate(self, spec: SimulationSpec) -> Simulation:
        """What was put into `changes` differs."""
        self._ask("simulate")
        self.spec = spec
        status = SimulationStatus(
            as_of=NOW,
            changes=self.changes,
            held_before="8",
            held_after="8",
            waiting_before="2",
            waiting_after="2",
        )
        return Simulation(spec=spec, status=status)

    async def evictions(self, namespace: str) -> tuple[list[Event], dict[str, Fate]]:
        """The events."""
        self._ask(f"evictions {namespace}")
        return self.events, self.fates


def _figures(queue: str) -> QueueFigures:
    return QueueFigures(
        queue=queue,
        node_pool="default",
        quota="8",
        fair_share="10",
        held="12",
        borrowed="4",
        waiting="4",
        parent="" if queue.startswith("department/") else "department/research",
        gpu_hours_per_month=None if queue.startswith("department/") else 1000,
        gpu_hours_used="" if queue.startswith("department/") else "812.5",
    )
