"""The part of a plan that is carried out while kube-scheduler is down: a probe at most.

A released pod would not be bound, and pods evicted for it would be lost for nothing.
"""

from dataclasses import replace

from extender.api.reasons import SENTENCES, Reason, Refused
from extender.policy.plan import Admission, Plan


def hold_back(plan: Plan, n_probes: int) -> Plan:
    """The plan with at most `n_probes` released workloads, and no evictions for other workloads.

    All others wait for the reason SCHEDULER_AWAY. Only evictions of stale gangs remain.
    """
    probes = [each for each in plan.admissions if each.state == "reserved"][:n_probes]
    keys = {each.workload.key for each in probes}
    held = [each for each in plan.admissions if each.workload.key not in keys]
    return replace(
        plan,
        admissions=probes,
        evictions=[each for each in plan.evictions if each.reason is Reason.GANG_STALE],
        moves=[],
        drops=[],
        waits=plan.waits | {each.workload.key: _why(each) for each in held},
    )


def _why(admission: Admission) -> Refused:
    detail = f"{admission.workload.key}: {SENTENCES[Reason.SCHEDULER_AWAY]}; it is released later"
    return Refused(Reason.SCHEDULER_AWAY, detail)
