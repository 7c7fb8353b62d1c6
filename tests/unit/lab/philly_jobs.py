"""Tiny traces: hours since the window's start, and quotas in nodes of 8 GPUs."""

from collections.abc import Sequence
from typing import Final

from extender.lab.philly.replay import Replay, ReplayOutcome
from extender.lab.philly.rules import ReplayPace, rule_named
from extender.lab.philly.trace import WINDOW_DAYS, WINDOW_START_S, PhillyTrace, TraceJob

HOUR = 3600
#: Cycles run as soon as anything happens.
AT_ONCE: Final = ReplayPace(0)


def job(tenant: str, at_h: float, run_h: float, gpus: int) -> TraceJob:
    """A job of `tenant`; its number is given by `trace`."""
    submit_s = WINDOW_START_S + round(at_h * HOUR)
    return TraceJob(
        number=0, tenant=tenant, submit_s=submit_s, run_s=round(run_h * HOUR), gpus=gpus
    )


def numbered(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The jobs in order of submission."""
    in_order = sorted(jobs, key=lambda each: each.submit_s)
    return [
        TraceJob(
            number=number,
            tenant=each.tenant,
            submit_s=each.submit_s,
            run_s=each.run_s,
            gpus=each.gpus,
        )
        for number, each in enumerate(in_order)
    ]


def trace(
    jobs: Sequence[TraceJob], days: tuple[int, int] = (1, WINDOW_DAYS), **quota: int
) -> PhillyTrace:
    """A trace with these quotas; the cluster has as many nodes as they sum to."""
    return PhillyTrace(numbered(jobs), quota, sum(quota.values()), days)


def replay(of: PhillyTrace, rule: str, pace: ReplayPace = AT_ONCE) -> ReplayOutcome:
    """What becomes of the trace under the rule."""
    return Replay(of, rule_named(rule), pace).run()


def waits_h(outcome: ReplayOutcome) -> list[float]:
    """Hours that each job waited, in the order of submission."""
    return [record.wait_s / HOUR for record in outcome.records]
