"""One term of leadership: cycle after cycle.

A cycle repairs unfinished work, takes a snapshot, decides (in a thread, so that watches and the
Lease go on), and carries out the plan. Releases, evictions and reports run beside the next cycles.
If `pace` says that no decision is due, the loop only repairs and reports. A cycle that fails is
logged and counted, and the next follows.
"""

import asyncio
import time
from dataclasses import replace
from typing import Any, Final

import structlog

from extender.cycle import metrics
from extender.cycle.commit.committer import Committer
from extender.cycle.decision import timed_decision
from extender.cycle.evictions.evictor import Evictor
from extender.cycle.evictions.unledgered import UnledgeredKeeper
from extender.cycle.keepers.inventory import InventoryKeeper
from extender.cycle.keepers.job_sizes import JobReader
from extender.cycle.keepers.provisioning import ProvisioningKeeper
from extender.cycle.keepers.ungated import UngatedPods
from extender.cycle.keepers.volumes import VolumeReader
from extender.cycle.pace import Basis, Pace
from extender.cycle.past_use import PastUseKeeper
from extender.cycle.pod_events import PodEvents
from extender.cycle.pods.releaser import Releaser
from extender.cycle.pods.writer import PodWriter
from extender.cycle.recovery.repair import Recovery
from extender.cycle.replica import Replica
from extender.cycle.reports.beside import Reports
from extender.cycle.reports.report import STATUS_PERIOD_S, Reporter
from extender.cycle.stage_turns import StageTurns
from extender.kube.errors import KubeError, NotLeading
from extender.ledger.writer import Ledger
from extender.policy.plan import Plan, Settings
from extender.state.snapshot import Snapshot
from extender.usage.books import UsageBooks

#: An epoch is the lease transitions times this, plus the cycle's number. This allows for years of
#: cycles, and stays below 2^53 for as many terms as there are minutes in 17 years. A term that has
#: used all of its epochs ends.
EPOCHS_PER_LEADER: Final = 1_000_000_000
#: The longest time between the end of a decision and the next, however long it took.
_LONGEST_REST_S: Final = 1.0
#: A plan is reported again after this, because pods get a wait reason only after 5 s.
_REPORT_AGAIN_S: Final = 5.0

log = structlog.get_logger(__name__)


class Term:
    """One term of leadership."""

    def __init__(self, replica: Replica, transitions: int) -> None:
        state, client = replica.state, replica.client
        self._replica = replica
        self._state = state
        self._first_epoch = transitions * EPOCHS_PER_LEADER
        self._number = 0
        self._has_read_live = False
        self._cut: frozenset[str] = frozenset()
        self._pace = Pace(replica.options.tick_s)
        self._reported_at = float("-inf")
        #: The last plan, as far as it was carried out, and the snapshot it was decided on.
        self._plan = Plan()
        self._snapshot: Snapshot | None = None
        self._stage_turns = StageTurns()
        #: CPU seconds of the last snapshot and decision, without work beside the cycle.
        self._computed_s = 0.0
        #: When the last decision ended, in seconds of the loop's clock.
        self._decided_at = float("-inf")
        self._inventory = InventoryKeeper(client, state)
        pods = PodWriter(client, state)
        self._releaser = Releaser(state, pods)
        self._recovery = Recovery(
            state,
            pods,
            replica.recorder,
            replica.options.bind_timeout_s,
            self._releaser.in_release,
        )
        self._unledgered = UnledgeredKeeper(state, pods, replica.recorder)
        self._evictor = Evictor(state, pods, replica.recorder, replica.meter)
        ledger = Ledger(client, state.gpu_node)
        self._committer = Committer(state, ledger, self._releaser, self._evictor)
        self._volumes = VolumeReader(client, state)
        self._jobs = JobReader(client, state)
        self._past_use = PastUseKeeper(state)
        self._books = UsageBooks(client, replica.meter, replica.options.usage_period_s)
        reporter = Reporter(client, state, replica.recorder, self._past_use, self._books.month_used)
        self._reports = Reports(reporter)
        ungated = UngatedPods(state, pods, PodEvents(state, replica.recorder))
        self._provisioning = ProvisioningKeeper(client, state, ungated)

    async def run(self) -> None:
        """Run cycles until the leadership ends. Releases, evictions, reports and usage books run
        beside them, and end with them."""
        books = asyncio.create_task(self._books.run())
        try:
            await self.run_cycles()
        finally:
            # First, because it does not await: a second cancellation may stop what follows.
            self._state.take_back_freed()
            books.cancel()
            # Together, so that one that ends slowly does not keep the others from closing.
            async with asyncio.TaskGroup() as closing:
                for part in (
                    self._releaser,
                    self._evictor,
                    self._unledgered,
                    self._reports,
                    self._provisioning,
                ):
                    closing.create_task(part.close())
            await asyncio.gather(books, return_exceptions=True)

    async def run_cycles(self) -> None:
        """Run cycles until the leadership ends; raises NotLeading then."""
        failures = 0
        options = self._replica.options
        while True:
            is_over = is_decided = False
            try:
                await self._wait()
                is_decided = await self.run_cycle()
                failures = 0
                metrics.CYCLES.labels("done" if is_decided else "unchanged").inc()
            except* NotLeading:
                is_over = True
            except* KubeError as errors:
                failures += 1
                metrics.CYCLES.labels("failed").inc()
                log.warning("cycle failed", errors=[str(error) for error in errors.exceptions])
            except* Exception as errors:
                # A bug, or an unforeseen object. The next leader would meet it as well, so this one
                # goes on: it does what it still can, and the log says what is wrong.
                failures += 1
                metrics.CYCLES.labels("broken").inc()
                log.error("cycle broke", exc_info=errors)
            if is_over:
                log.warning("stopped deciding: the Lease was not renewed in time")
                raise NotLeading("the Lease was not renewed in time")  # the election tries again
            rest_s = self._rest_s() if is_decided else 0.0
            await asyncio.sleep(max(options.gap_s, rest_s, min(5.0, 0.2 * failures)))

    def _rest_s(self) -> float:
        """Seconds until the next cycle may decide: computing uses at most a third of one core, or
        one second passes between two decisions. The time of writes counts."""
        passed_s = asyncio.get_running_loop().time() - self._decided_at
        return min(_LONGEST_REST_S, 2 * self._computed_s) - passed_s

    async def _wait(self) -> None:
        """Wait until there is something to decide, repair or report."""
        if not (self._cut or self._volumes.is_behind):
            is_behind, tick_s = self._reports.is_behind, self._replica.options.tick_s
            pause_s = STATUS_PERIOD_S if is_behind else tick_s
            await self._replica.wait_for_change(self._pace.basis.model_version, pause_s)

    async def run_cycle(self) -> bool:
        """Repair, decide if that is due, and report; returns whether it decided. Raises KubeError
        if nothing of the plan could be written."""
        self._number += 1
        if self._number >= EPOCHS_PER_LEADER:
            raise NotLeading("this term has used all of its plan numbers")
        await self._repair()
        # No await from here until the snapshot is taken.
        basis = Basis(self._state.version(), self._evictor.protected())
        is_due = self._pace.is_due(basis, asyncio.get_running_loop().time())
        failure: KubeError | None = None
        if is_due:
            plan, failure = await self._decide_and_commit()
            now = asyncio.get_running_loop().time()
            self._pace.note(basis, plan, self._computed_s, now)
        self._report(is_new=is_due)
        if failure is not None:
            raise failure
        return is_due

    async def _repair(self) -> None:
        if not self._has_read_live:
            await self._replica.read_live()
            self._has_read_live = True
        with _timed("inventory"):
            await self._inventory.keep()
            await self._replica.namespaces.keep(self._replica.client, self._state.listed_namespaces)
            await self._volumes.keep()
            await self._jobs.keep()
            self._unledgered.keep()
        with _timed("recovery"):
            await self._committer.repair(await self._recovery.plan())
            await self._committer.hand_over()
        self._evictor.review()

    async def _decide_and_commit(self) -> tuple[Plan, KubeError | None]:
        """The plan as decided, which may be carried out only in part, and the error if none of its
        rows could be written."""
        started_s = time.thread_time()
        with _timed("snapshot"):
            snapshot = self._state.snapshot(int(time.time()))
        self._computed_s = time.thread_time() - started_s
        with _timed("decide"):
            decided = await self.decide(snapshot)
        self.note_cut(decided)
        plan = self._recovery.hold_back(decided)
        self._plan, self._snapshot = plan, snapshot
        self._books.queues = snapshot.queues
        with _timed("commit"):
            epoch = self._first_epoch + self._number
            failure = await self._committer.carry_out(plan, snapshot, epoch)
        return decided, failure

    def _report(self, *, is_new: bool) -> None:
        """Report the last plan, which is valid until the next."""
        assert self._snapshot is not None
        self._past_use.step(self._plan, replace(self._snapshot, now_s=int(time.time())))
        self._provisioning.start(self._plan)
        now = asyncio.get_running_loop().time()
        if is_new:
            self._reported_at = float("-inf")
        is_due = self._reports.is_behind or now - self._reported_at >= _REPORT_AGAIN_S
        if is_due and self._reports.start(self._provisioning.noted(self._plan)):
            self._reported_at = now

    async def decide(self, snapshot: Snapshot) -> Plan:
        """The plan for the snapshot, decided in a thread."""
        self._replica.deciding_since = time.monotonic()
        try:
            budget_s = self._replica.options.cycle_budget_s
            plan, took_s = await asyncio.to_thread(
                timed_decision, snapshot, self.settings(), budget_s
            )
        finally:
            self._replica.deciding_since = None
        self._computed_s += took_s
        self._decided_at = asyncio.get_running_loop().time()
        return plan

    def settings(self) -> Settings:
        """The settings of this cycle's decision."""
        return Settings(
            stages=self._stage_turns.next(),
            protected_pods=self._evictor.protected(),
            held_since=self._evictor.held_since(),
            first=self._cut,
        )

    def note_cut(self, plan: Plan) -> None:
        """Consider workloads first in the next cycle that this one had no time for."""
        self._cut = plan.cut
        metrics.CUT_WORKLOADS.set(len(plan.cut))
        for stage in plan.cut_stages:
            metrics.CUT_STAGES.labels(stage).inc()
        if plan.cut:
            log.info("cycle cut short", workloads=len(plan.cut), stages=list(plan.cut_stages))


def _timed(part: str) -> Any:
    return metrics.CYCLE_SECONDS.labels(part).time()
