"""Tiny traces by hand: hours since the window's start, and quotas in nodes of 8 GPUs."""

from collections.abc import Sequence
from typing import Final

from extender.lab.philly.replay import Outcome, Replay
from extender.lab.philly.rules import Pace, rule_named
from extender.lab.philly.trace import WINDOW_DAYS, WINDOW_START_S, Job, Trace

HOUR = 3600
#: Cycles run as soon as anything happens.
AT_ONCE: Final = Pace(0)


def job(tenant: str, at_h: float, run_h: float, gpus: int) -> Job:
    """A job of `tenant`; its number is given by `trace`."""
    submit_s = WINDOW_START_S + round(at_h * HOUR)
    return Job(number=0, tenant=tenant, submit_s=submit_s, run_s=round(run_h * HOUR), gpus=gpus)


def numbered(jobs: Sequence[Job]) -> list[Job]:
    """The jobs in order of submission."""
    in_order = sorted(jobs, key=lambda each: each.submit_s)
    return [
        Job(
            number=number,
            tenant=each.tenant,
            submit_s=each.submit_s,
            run_s=each.run_s,
            gpus=each.gpus,
        )
        for number, each in enumerate(in_order)
    ]


def trace(jobs: Sequence[Job], days: tuple[int, int] = (1, WINDOW_DAYS), **quota: int) -> Trace:
    """A trace with these quotas; the cluster has as many nodes as they sum to."""
    return Trace(numbered(jobs), quota, sum(quota.values()), days)


def replay(of: Trace, rule: str, pace: Pace = AT_ONCE) -> Outcome:
    """What becomes of the trace under the rule."""
    return Replay(of, rule_named(rule), pace).run()


def waits_h(outcome: Outcome) -> list[float]:
    """Hours that each job waited, in the order of submission."""
    return [record.wait_s / HOUR for record in outcome.records]
