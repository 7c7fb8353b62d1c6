"""`ballast control`: one leader turns what the API server says into plans, and plans into writes.

Every replica watches and keeps a warm model; only the leader's loop writes. A cycle is: mend what
was left half way, take a snapshot, decide (in a thread, so that watches and the Lease go on), carry
the plan out. Releases, evictions and reports go on beside the next cycles. A cycle that fails is
logged, counted and followed by another.
"""

import asyncio
import gc
import time
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import structlog

from extender.api.events import Event
from extender.api.kinds import GpuNode
from extender.api.names import LEASE_NAME, SYSTEM_NAMESPACE
from extender.api.objects import Pod
from extender.cycle import metrics
from extender.cycle.commit.committer import Committer
from extender.cycle.cycle_budget import CycleBudget
from extender.cycle.evictions.evictor import Evictor
from extender.cycle.evictions.unledgered import UnledgeredKeeper
from extender.cycle.keepers.inventory import InventoryKeeper
from extender.cycle.keepers.namespaces import NamespaceKeeper
from extender.cycle.keepers.provisioning import ProvisioningKeeper
from extender.cycle.keepers.ungated import UngatedPods
from extender.cycle.keepers.volumes import VolumeReader
from extender.cycle.past_use import PastUseKeeper
from extender.cycle.pod_events import PodEvents
from extender.cycle.pods.releaser import Releaser
from extender.cycle.pods.writer import PodWriter
from extender.cycle.recovery.repair import Recovery
from extender.cycle.reports.beside import Reports
from extender.cycle.reports.report import STATUS_PERIOD_S, Reporter
from extender.cycle.stage_clock import StageClock
from extender.cycle.stage_turns import StageTurns
from extender.kube.client import Client
from extender.kube.election import Election, Leadership, terms_of
from extender.kube.errors import KubeError, NotLeading
from extender.kube.recorder import EventRecorder
from extender.kube.reflector import Reflector
from extender.kube.resources import MODEL, NAMESPACES
from extender.kube.served import served_devices
from extender.ledger.writer import Ledger
from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings, Stage
from extender.state.cluster import ClusterState
from extender.state.snapshot import Snapshot
from extender.usage.books import PERIOD_S, UsageBooks
from extender.usage.integral import DAY_S
from extender.usage.meter import KEPT_S, UsageMeter

#: Epochs are lease transitions times this, plus the cycle's number: years of cycles, and below 2^53
#: for as many terms as there are minutes in 17 years. A term that has used all of them ends.
EPOCHS_PER_LEADER: Final = 1_000_000_000

#: However long a decision computed, the next cycle starts after this.
_LONGEST_REST_S: Final = 1.0

#: Between two looks of a replica that does not lead.
_WARM_EVERY_S: Final = 30.0
#: A decision that takes longer than this has no end: its budget is a second of CPU time.
_DECIDES_WITHIN_S: Final = 120.0

log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class ControlOptions:
    """How the controller runs. Seconds; `identity` must be this process's alone."""

    identity: str
    kubeconfig: str = ""
    namespace: str = SYSTEM_NAMESPACE
    lease_duration_s: float = 15.0
    bind_timeout_s: float = 30.0
    #: Time alone can change a decision (min-runtime, timeouts): look at least this often.
    tick_s: float = 2.0
    #: A cycle follows another after this at the earliest, so that bursts become one batch.
    gap_s: float = 0.02
    #: CPU time to decide in one cycle; what is left over comes first in the next.
    cycle_budget_s: float = 1.0
    #: Time between two writes of the usage books.
    usage_period_s: float = PERIOD_S


class Controller:
    """The brain of one replica."""

    def __init__(self, reader: Client, writer: Client, options: ControlOptions) -> None:
        self._reader = reader
        self._writer = writer
        self._options = options
        self.state = ClusterState()
        self.meter = UsageMeter(self.state.user_of)
        self._wake = asyncio.Event()
        self._recorder = EventRecorder(writer, options.identity)
        self._reflector_of: dict[type, Reflector[Any]] = {
            resource.kind: Reflector(reader, resource, self._deliver, ends_on_restore=True)
            for resource in MODEL
        }
        self._reflectors = list(self._reflector_of.values())
        self._is_leading = False
        #: Since when a decision is under way, on the monotonic clock.
        self.deciding_since: float | None = None
        self._namespaces = NamespaceKeeper(self._wake.set)
        self._reflectors.append(Reflector(reader, NAMESPACES, self._namespaces.deliver))

    @property
    def is_ready(self) -> bool:
        """Whether the model holds all there was at the start."""
        return all(self.state.has_synced(resource.kind) for resource in MODEL)

    def is_alive(self) -> bool:
        """Whether decisions come to an end. While one hangs, the Lease is renewed all the same, so
        no other replica would ever take over."""
        since = self.deciding_since
        return since is None or time.monotonic() - since < _DECIDES_WITHIN_S

    def note_sizes(self) -> None:
        """Bring the gauges of the model's size up to date."""
        metrics.CACHE_SIZE.labels("nodes").set(len(self.state.gpu_nodes))
        metrics.CACHE_SIZE.labels("workloads").set(len(self.state.workloads()))

    async def run(self) -> None:
        """Watch, take part in the election, and decide while leading; ends by cancellation."""
        options = self._options
        terms = terms_of(options.lease_duration_s)
        election = Election(self._reader, options.namespace, LEASE_NAME, options.identity, **terms)
        for resource in await served_devices(self._reader):
            self._reflectors.append(
                Reflector(self._reader, resource, self._deliver, ends_on_restore=True)
            )
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._forget_use())
            await asyncio.gather(*(reflector.wait_synced() for reflector in self._reflectors))
            # The first takes seconds in a large cluster: there is no Lease yet that it could lose.
            self._warm_up()
            # What was listed stays: the collector need not walk it again in every cycle.
            gc.freeze()
            log.info("model filled", nodes=len(self.state.gpu_nodes))
            tasks.create_task(self._stay_warm())
            tasks.create_task(election.run(self._lead))

    def _warm_up(self) -> None:
        """Bring the model up to date, so that a term begins with what has changed lately."""
        self.state.snapshot(int(time.time()))

    async def _stay_warm(self) -> NoReturn:
        """While another replica leads, no cycle looks at the model."""
        while True:
            await asyncio.sleep(_WARM_EVERY_S)
            if not self._is_leading:
                self._warm_up()

    async def _lead(self, leadership: Leadership) -> None:
        self._writer.before_write = leadership.check
        metrics.IS_LEADER.set(1)
        self._is_leading = True
        try:
            await _Term(self, leadership.transitions).run()
        finally:
            self._is_leading = False
            metrics.end_term()

    async def read_live(self) -> None:
        """Take ledgers and pods as they are now: a watch may lag, after a freeze above all.

        The reflectors list, so that they also notice when what was listed is gone.
        """
        await asyncio.gather(*(self._reflector_of[each].relist() for each in (GpuNode, Pod)))

    async def _forget_use(self) -> None:
        """Keep no more of what was held than a new leader may have to book. A leader forgets what
        it has booked; what it cannot book for a day is given up."""
        while True:
            await asyncio.sleep(PERIOD_S)
            kept_s = DAY_S if self._is_leading else KEPT_S
            self.meter.forget(int(time.time()) - kept_s)

    def _deliver(self, event: Event) -> None:
        self.state.apply(event)
        self._wake.set()
        self.meter.observe(event, int(time.time()))

    # What a term of office needs of the controller.

    @property
    def options(self) -> ControlOptions:
        """How it was told to run."""
        return self._options

    @property
    def client(self) -> Client:
        """The client for fenced writes."""
        return self._writer

    @property
    def namespaces(self) -> NamespaceKeeper:
        """What keeps the label of projects' namespaces."""
        return self._namespaces

    @property
    def recorder(self) -> EventRecorder:
        """Where events go."""
        return self._recorder

    async def wait_for_change(self, timeout_s: float) -> None:
        """Until the model changed, or the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()


class _Term:
    """One unbroken time of leading."""

    def __init__(self, controller: Controller, transitions: int) -> None:
        state, client = controller.state, controller.client
        self._controller = controller
        self._state = state
        self._first_epoch = transitions * EPOCHS_PER_LEADER
        self._number = 0
        self._has_read_live = False
        self._cut: frozenset[str] = frozenset()
        self._stage_turns = StageTurns()
        #: CPU seconds of the last snapshot and decision. What runs beside the cycle is not in it.
        self._computed_s = 0.0
        self._inventory = InventoryKeeper(client, state)
        pods = PodWriter(client, state)
        self._releaser = Releaser(state, pods)
        self._recovery = Recovery(
            state,
            pods,
            controller.recorder,
            controller.options.bind_timeout_s,
            self._releaser.in_release,
        )
        self._unledgered = UnledgeredKeeper(state, pods, controller.recorder)
        self._evictor = Evictor(state, pods, controller.recorder, controller.meter)
        ledger = Ledger(client, state.gpu_node)
        self._committer = Committer(state, ledger, self._releaser, self._evictor)
        self._volumes = VolumeReader(client, state)
        self._past_use = PastUseKeeper(state)
        self._books = UsageBooks(client, controller.meter, controller.options.usage_period_s)
        reporter = Reporter(
            client, state, controller.recorder, self._past_use, self._books.month_used
        )
        self._reports = Reports(reporter)
        ungated = UngatedPods(state, pods, PodEvents(state, controller.recorder))
        self._provisioning = ProvisioningKeeper(client, state, ungated)

    async def run(self) -> None:
        """Cycle after cycle until leading ends; releases, evictions, reports and usage books run
        beside them, and end with them."""
        books = asyncio.create_task(self._books.run())
        try:
            await self._cycles()
        finally:
            # First, without an await: a second cancellation may end the others.
            self._state.take_back_freed()
            books.cancel()
            await asyncio.gather(books, return_exceptions=True)
            await self._releaser.close()
            await self._evictor.close()
            await self._reports.close()
            await self._provisioning.close()
            self._unledgered.close()

    async def _cycles(self) -> None:
        failures = 0
        options = self._controller.options
        while True:
            is_over = False
            try:
                await self._cycle()
                failures = 0
                metrics.CYCLES.labels("done").inc()
            except* NotLeading:
                is_over = True
            except* KubeError as errors:
                failures += 1
                metrics.CYCLES.labels("failed").inc()
                log.warning("cycle failed", errors=[str(error) for error in errors.exceptions])
            except* Exception as errors:
                # A bug, or an unforeseen object. The next leader would meet it as well, so this one
                # goes on: what can still be done is done, and the log says what is wrong.
                failures += 1
                metrics.CYCLES.labels("broken").inc()
                log.error("cycle broke", exc_info=errors)
            if is_over:
                log.warning("stopped deciding: the Lease was not renewed in time")
                raise NotLeading("the Lease was not renewed in time")  # the election tries again
            # About a third of one core: the API server and kube-scheduler want the rest.
            rest_s = min(_LONGEST_REST_S, 2 * self._computed_s)
            await asyncio.sleep(max(options.gap_s, rest_s, min(5.0, 0.2 * failures)))
            if not self._cut:
                pause_s = STATUS_PERIOD_S if self._reports.is_behind else options.tick_s
                await self._controller.wait_for_change(pause_s)

    async def _cycle(self) -> None:
        self._number += 1
        if self._number >= EPOCHS_PER_LEADER:
            raise NotLeading("this term has used all of its plan numbers")
        if not self._has_read_live:
            await self._controller.read_live()
            self._has_read_live = True
        with _timed("inventory"):
            await self._inventory.keep()
            await self._controller.namespaces.keep(
                self._controller.client, self._state.listed_namespaces
            )
            await self._volumes.keep()
            await self._unledgered.keep()
        with _timed("recovery"):
            await self._committer.repair(await self._recovery.plan())
            await self._committer.hand_over()
        self._evictor.review()
        # From here on no await until the snapshot is taken.
        started_s = time.thread_time()
        with _timed("snapshot"):
            snapshot = self._state.snapshot(int(time.time()))
        self._computed_s = time.thread_time() - started_s
        with _timed("decide"):
            plan = await self._decide(snapshot)
        self._note_cut(plan)
        plan = self._recovery.hold_back(plan)
        self._past_use.step(plan, snapshot)
        self._books.queues = snapshot.queues
        with _timed("commit"):
            epoch = self._first_epoch + self._number
            await self._committer.carry_out(plan, snapshot, epoch)
        self._provisioning.start(plan)
        self._provisioning.note_on(plan)
        self._reports.start(plan)

    async def _decide(self, snapshot: Snapshot) -> Plan:
        self._controller.deciding_since = time.monotonic()
        try:
            budget_s = self._controller.options.cycle_budget_s
            plan, took_s = await asyncio.to_thread(_decide, snapshot, self._settings(), budget_s)
        finally:
            self._controller.deciding_since = None
        self._computed_s += took_s
        return plan

    def _settings(self) -> Settings:
        """What this cycle does."""
        return Settings(
            stages=self._stage_turns.next(),
            protected_pods=self._evictor.protected(),
            held_since=self._evictor.held_since(),
            first=self._cut,
        )

    def _note_cut(self, plan: Plan) -> None:
        """Workloads that there was no time for are looked at first in the next cycle."""
        self._cut = plan.cut
        metrics.CUT_WORKLOADS.set(len(plan.cut))
        for stage in plan.cut_stages:
            metrics.CUT_STAGES.labels(stage).inc()
        if plan.cut:
            log.info("cycle cut short", workloads=len(plan.cut), stages=list(plan.cut_stages))


def _decide(snapshot: Snapshot, settings: Settings, budget_s: float) -> tuple[Plan, float]:
    """The plan, within the budget, and the CPU seconds that it took; each stage is timed."""
    started_s, clock, budget = time.thread_time(), StageClock(), CycleBudget(budget_s)

    def enter(stage: Stage) -> None:
        budget.start()
        clock.enter(stage)

    plan = decide(snapshot, replace(settings, enter=enter, is_spent=budget.is_spent))
    clock.stop()
    return plan, time.thread_time() - started_s


def _timed(part: str) -> Any:
    return metrics.CYCLE_SECONDS.labels(part).time()
