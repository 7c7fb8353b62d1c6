"""`python -m tests.support.auditor`: audit a live cluster until Ctrl-C, or judge a recording.

Exits with 0 if the audit is clean, else with 1 (also if no bind was seen).
"""

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path

import click

from tests.support.auditor.auditor import Auditor, find_store
from tests.support.auditor.checker import Checker, Violation
from tests.support.auditor.etcd import Store
from tests.support.auditor.history import replay
from tests.support.auditor.verdict import Verdict


@click.command()
@click.option("--kubeconfig", envvar="KUBECONFIG", help="Of the cluster to audit.")
@click.option("--etcd", help="Its etcd, when the kubeconfig does not say: http://127.0.0.1:2379")
@click.option("--etcd-prefix", default="/registry", show_default=True)
@click.option("--record", type=click.Path(path_type=Path), help="Write what is seen to this file.")
@click.option("--replay", "recording", type=click.Path(exists=True, path_type=Path))
@click.option("--seconds", type=float, help="End after this long instead of at Ctrl-C.")
def main(
    kubeconfig: str | None,
    etcd: str | None,
    etcd_prefix: str,
    record: Path | None,
    recording: Path | None,
    seconds: float | None,
) -> None:
    """Judge a cluster's history by the invariants of Ballast."""
    if recording:
        verdict = judge(recording)
    elif etcd or kubeconfig:
        store = Store(etcd, etcd_prefix) if etcd else find_store(str(kubeconfig))
        verdict = asyncio.run(watch(store, record, seconds))
    else:
        raise click.UsageError("give --kubeconfig, --etcd or --replay")
    click.echo(str(verdict))
    sys.exit(0 if verdict.is_clean else 1)


def judge(recording: Path) -> Verdict:
    """The verdict on a recording, with its times as the clock."""
    checker, violations = Checker(), list[Violation]()
    last_s = time.monotonic()
    for change in replay(recording):
        if not change.is_initial:
            violations += checker.tick(change.seen_s)
        violations += checker.observe(change)
        last_s = change.seen_s
    end_s = last_s + checker.limits.rest_s
    return Verdict(checker.counts, violations + checker.settle(end_s), was_at_rest=True)


async def watch(store: Store, record: Path | None, seconds: float | None) -> Verdict:
    """Audit until Ctrl-C or for `seconds`; violations are printed as they are found."""
    told = 0
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with Auditor(store, record=record) as auditor:
        end_s = time.monotonic() + seconds if seconds else float("inf")
        while not ended.is_set() and time.monotonic() < end_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), min(1.0, end_s - time.monotonic()))
            for violation in auditor.violations[told:]:
                click.echo(str(violation))
            told = len(auditor.violations)
        return await auditor.finish()


if __name__ == "__main__":
    main()
