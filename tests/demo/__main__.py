"""`python -m tests.demo`; exits with 0 if the story succeeded and the audit is clean.

KEEP=1 leaves everything running afterwards, until Ctrl-C.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.demo.board import Board
from tests.demo.outcome import Outcome
from tests.demo.parts import Parts
from tests.demo.screen import Screen
from tests.demo.story import Story
from tests.demo.trace import read_nodes, read_workloads
from tests.support.auditor import Auditor, Verdict
from tests.support.controlplane.process import ControlPlaneError

#: Width of the output if it is not a terminal.
WIDTH = 120

NEXT = """
Everything keeps running; Ctrl-C ends it. In another terminal:

    export KUBECONFIG={kubeconfig}
    export PATH={programs}:$PWD/.venv/bin:$PATH
    kubectl get gpudepartments,gpuprojects
    kubectl get gpunodes
    kubectl create -n vision -f examples/half-gpu.yaml
    kubectl create -n language -f examples/gang.yaml
    kubectl create -n search -f examples/inference.yaml
    kubectl create -n vision -f examples/train-7.yaml
    kubectl get pods -n vision -o wide
    kubectl ballast shares
    kubectl ballast queue -A
    kubectl ballast why job/train-7 -n vision
    kubectl ballast whatif --quota vision=110
    kubectl ballast report usage --by project,user
    kubectl ballast web

Logs: {logs}
"""


async def run(console: Console, *, is_kept: bool) -> int:
    """Start the programs, run the story, judge it, and end; returns the exit status."""
    started_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        console.print("starting the control plane and Ballast")
        parts = Parts()
        await uncut(lambda: stack.enter_context(parts))
        await uncut(parts.install)
        await uncut(parts.start_ballast)
        async with Auditor(parts.store) as auditor:
            nodes = read_nodes()
            await uncut(lambda: parts.add_nodes(nodes))
            board = Board(auditor)
            screen = Screen(board.figures, console, started_s)
            screen.say(f"{len(nodes)} nodes with {sum(each.gpus for each in nodes)} GPUs are ready")
            drawing = asyncio.create_task(screen.run())
            try:
                outcome = await Story(parts.plane.admin, board, screen).tell(read_workloads())
            finally:
                drawing.cancel()
                await asyncio.gather(drawing, return_exceptions=True)
            verdict = await auditor.finish()
            conclude(console, board, outcome, verdict)
            is_good = verdict.is_clean and not outcome.notes
            parts.keeps_logs = not is_good
            if is_kept:
                await uncut(parts.start_view)
                kubectl = parts.plane.program("kubectl")
                console.print(
                    NEXT.format(
                        kubeconfig=parts.plane.kubeconfig,
                        programs=Path(kubectl).parent,
                        logs=parts.plane.logs,
                    ),
                    markup=False,
                )
                await asyncio.Event().wait()
        return 0 if is_good else 1


async def uncut(work: Callable[[], object]) -> None:
    """Run blocking work in a thread; a cancellation takes effect when it is done, so that no part
    is half started when the parts are ended."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def conclude(console: Console, board: Board, outcome: Outcome, verdict: Verdict) -> None:
    """Print the figures and the verdict."""
    figures = board.figures()
    reasons = ("Reclaimed", "Moved", "Preempted")
    by_reason = ", ".join(f"{board.reasons[name]} {name}" for name in reasons)
    console.print()
    for name, value in (
        ("pods submitted", f"{outcome.submitted}"),
        ("binds", f"{figures.bound}"),
        ("gated to bound, median", f"{board.median_wait_s():.2f} s"),
        ("pods bound in the busiest second", f"{board.peak_binds()}"),
        ("GPUs borrowed while the owner was away", f"{outcome.borrowed_milli / 1000:.1f}"),
        ("time to reclaim", _seconds(outcome.reclaim_s)),
        ("place for an urgent session", _seconds(outcome.urgent_s)),
        ("a whole node for a pod of eight GPUs", _seconds(outcome.whole_node_s)),
        ("evictions", f"{figures.evicted} ({by_reason})"),
        (
            "Jobs that failed",
            f"{len(outcome.failed_jobs)} of {outcome.n_jobs}, although none sets podFailurePolicy",
        ),
        ("cards shared by several pods, at most", f"{board.most_shared} of {figures.cards}"),
    ):
        console.print(f"  {name:40} {value}")
    for note in outcome.notes:
        console.print(f"  not as told: {note}")
    console.print(str(verdict), markup=False)


def _seconds(took_s: float | None) -> str:
    return "not in time" if took_s is None else f"{took_s:.1f} s"


def main() -> int:
    """Run until the end, Ctrl-C or SIGTERM."""
    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, soft_wrap=True, width=None if is_terminal else WIDTH)

    async def told() -> int:
        task = asyncio.ensure_future(run(console, is_kept=bool(os.environ.get("KEEP"))))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            console.print("ended")
            return 130

    try:
        return asyncio.run(told())
    except ControlPlaneError as error:
        console.print(f"error: {error}", markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
