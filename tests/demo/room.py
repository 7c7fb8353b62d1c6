"""Chapters three and four: a preemption within a project, and a move that makes a node free."""

import time
from collections import Counter
from typing import Final

from tests.demo.board import Board
from tests.demo.hand import Hand
from tests.demo.outcome import Outcome
from tests.demo.screen import Screen
from tests.demo.trace import Workload
from tests.support.auditor.sight import PodSeen

CARDS: Final = 8
#: Cards that single-GPU jobs free on each of the large nodes when they end.
FREED: Final = 2
MOVER: Final = "language"
#: Project of the jobs that take more than half of each node that is empty, and their largest
#: number.
FILLER: Final = "search"
MOST_FILLERS: Final = 8
URGENT_GPUS: Final = 4
WAIT_S: Final = 40.0
#: Time after which a Job replaces an evicted pod; it doubles with each further one, until a pod
#: succeeds.
BACK_OFF_S: Final = 10.0
#: If no new pod is pending for this long, owners create none of the withdrawn pods again.
CALM_S: Final = 1.5


class Room:
    """The two chapters, on the cluster as the earlier ones leave it."""

    def __init__(self, hand: Hand, board: Board, screen: Screen) -> None:
        self._hand = hand
        self._board = board
        self._screen = screen

    async def preempt(self, outcome: Outcome) -> None:
        """An urgent workload of a project at its fair share preempts pods of the same project."""
        self._screen.title = "3. priority inside a project"
        project = max(self._board.world.projects, key=self._surplus)
        self._screen.say(
            f"the cluster is full and {project} has its share of it; its interactive session of"
            f" {URGENT_GPUS} GPUs comes"
        )
        before = self._board.reasons["Preempted"]
        urgent = _workload("session", project, URGENT_GPUS, kind="interactive")
        outcome.urgent_s = await self._time_to_bind(urgent, WAIT_S)
        if outcome.urgent_s is None:
            outcome.notes.append(f"{project}'s session was not bound in {WAIT_S:.0f} s")
            return
        await self._hand.until(lambda: self._board.reasons["Preempted"] > before, WAIT_S / 4)
        await self._hand.until(self._is_still, WAIT_S / 4)
        outcome.preempted = self._board.reasons["Preempted"] - before
        if not outcome.preempted:
            outcome.notes.append("nothing was preempted for it")
        self._screen.say(
            f"{project}'s session runs {outcome.urgent_s:.1f} s after it came, in the place of"
            f" {outcome.preempted} of {project}'s own training pods"
        )
        self._screen.show()

    async def move(self, outcome: Outcome) -> None:
        """A pod of eight GPUs arrives while no node has eight free, though the cluster has more."""
        self._screen.title = "4. a fragmented cluster: work moves together"
        await self._withdraw()
        await self._hand.end(self._singles_to_end())
        await self._withdraw()
        await self._hand.end(self._fixed_to_end())
        await self._withdraw()
        await self._take_empty_nodes()
        free = self._board.free_cards()
        self._screen.say(
            f"what waited was withdrawn and some jobs have ended: {sum(free.values())} cards are"
            f" free, but at most {max(free.values())} on one node"
        )
        if max(free.values()) >= CARDS:
            outcome.notes.append("a node had eight free cards by itself: nothing had to move")
        before, n_running = self._board.reasons["Moved"], self._n_running()
        n_evicted = len(self._board.evictions)
        outcome.whole_node_s = await self._time_to_bind(
            _workload("whole-node", MOVER, CARDS), WAIT_S
        )
        if outcome.whole_node_s is None:
            outcome.notes.append(f"the pod of {CARDS} GPUs was not bound in {WAIT_S:.0f} s")
            return
        took_s = outcome.whole_node_s
        self._screen.say(
            f"{MOVER}'s pod of {CARDS} GPUs has a node to itself, {took_s:.1f} s after it came"
        )

        def n_missing() -> int:
            """Number of moved pods that should run again by now and do not."""
            n_late = self._n_late(self._board.evictions[n_evicted:])
            return n_running + 1 - n_late - self._n_running()

        if not await self._hand.until(lambda: n_missing() <= 0, WAIT_S):
            outcome.notes.append(f"{n_missing()} moved pods did not run again in {WAIT_S:.0f} s")
        n_late = self._n_late(self._board.evictions[n_evicted:])
        outcome.moved = self._board.reasons["Moved"] - before
        if not outcome.moved:
            outcome.notes.append("no pod was moved for it")
        late = f", {n_late} of them after their Job's back-off" if n_late else ""
        self._screen.say(f"{outcome.moved} pods were moved for it, and run again elsewhere{late}")
        self._screen.show()

    def _n_late(self, evicted: list[PodSeen]) -> int:
        """How many evicted pods belong to Jobs that replace them too late for the demonstration."""
        n_failed = Counter(pod.owner for pod in self._board.evictions)
        return sum(
            BACK_OFF_S * 2 ** (n_failed[pod.owner] - 1) > WAIT_S - BACK_OFF_S for pod in evicted
        )

    def _surplus(self, project: str) -> int:
        """Milli-GPU that the project holds above its fair share."""
        share = sum(self._board.world.projects[project].fair_share.values())
        return self._board.allocated(project) - share

    async def _withdraw(self) -> None:
        """Delete pending workloads, and the pods that owners create again, until there are none."""
        ends_s = time.monotonic() + WAIT_S
        while time.monotonic() < ends_s:
            await self._hand.end(self._board.waiting())
            if await self._hand.until(lambda: bool(self._board.waiting()), CALM_S):
                continue
            if self._is_still():
                return

    async def _take_empty_nodes(self) -> None:
        """Occupy nodes that became empty with jobs that fit hardly anywhere else."""
        for at in range(MOST_FILLERS):
            if max(self._board.free_cards().values()) < CARDS:
                return
            if at == 0:
                self._screen.say(f"a node was left empty: {FILLER} starts on more than half of it")
            await self._time_to_bind(_workload(f"filler-{at}", FILLER, CARDS // 2 + 1), WAIT_S)

    async def _time_to_bind(self, workload: Workload, timeout_s: float) -> float | None:
        started_s = time.monotonic()
        await self._hand.submit([workload])

        def is_bound() -> bool:
            return any(pod.node for pod in self._pods_of(workload))

        if not await self._hand.until(is_bound, timeout_s):
            return None
        return time.monotonic() - started_s

    def _pods_of(self, workload: Workload) -> list[PodSeen]:
        prefix = f"{workload.name}-"
        pods = self._board.world.pods.values()
        return [
            pod for pod in pods if pod.namespace == workload.project and pod.name.startswith(prefix)
        ]

    def _singles_to_end(self) -> list[PodSeen]:
        """Jobs of one whole GPU to end, so that each large node has some free cards and none
        all."""
        chosen = []
        for name, n_free in sorted(self._board.free_cards().items()):
            ledger = self._board.world.ledgers[name]
            if len(ledger.devices) != CARDS:
                continue
            left = max(0, FREED - n_free)
            for row in ledger.rows:
                pod = self._board.world.pods_by_uid.get(row.uid)
                is_single = len(row.cards) == 1 and row.milli == 1000
                if left and is_single and pod and pod.is_preemptible and not pod.group:
                    chosen.append(pod)
                    left -= 1
        return chosen

    def _fixed_to_end(self) -> list[PodSeen]:
        """Inference and gangs to end on the large node with the fewest of their pods, so that moves
        can empty at least one. Inference is never moved, few pods of a Job's gang at a time, and
        only small pods fit elsewhere."""
        by_uid, found = self._board.world.pods_by_uid, list[list[PodSeen]]()
        for _, ledger in sorted(self._board.world.ledgers.items()):
            rows = [row for row in ledger.rows if row.uid in by_uid]
            pods = {row.uid: by_uid[row.uid] for row in rows}
            fixed = {uid for uid, pod in pods.items() if pod.group or not pod.is_preemptible}
            moves = [row for row in rows if row.uid not in fixed]
            is_small = all(len(row.cards) <= FREED for row in moves)
            if len(ledger.devices) == CARDS and moves and is_small:
                found.append([pods[uid] for uid in sorted(fixed)])
        return min(found, key=len, default=[])

    def _n_running(self) -> int:
        """Number of bound pods that are not terminating."""
        pods = self._board.world.pods.values()
        return sum(
            bool(pod.node) and pod.asked is not None and not pod.is_leaving and not pod.has_ended
            for pod in pods
        )

    def _is_still(self) -> bool:
        """Whether no pod is terminating, and every row has a live pod."""
        world = self._board.world
        rows = (row for ledger in world.ledgers.values() for row in ledger.rows)
        return not any(pod.is_leaving for pod in world.pods.values()) and all(
            world.is_live(row.uid) for row in rows
        )


def _workload(name: str, project: str, cards: int, kind: str = "training") -> Workload:
    return Workload(
        name=name,
        at_ms=0,
        project=project,
        kind=kind,
        cpu_milli=8000,
        memory_mib=32768,
        gpus=cards,
        milli=1000,
    )
