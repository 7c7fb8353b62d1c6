"""What of a plan is carried out while kube-scheduler is away: nothing but one trial.

A release would wait without an answer, and whatever is evicted for it would be lost for nothing.
"""

from dataclasses import replace

from extender.api.reasons import SENTENCES, Reason, Refused
from extender.policy.plan import Admission, Plan


def hold_back(plan: Plan, n_probes: int) -> Plan:
    """The plan with at most `n_probes` workloads to release, and no evictions for others.

    The rest waits, for the reason SCHEDULER_AWAY. Of evictions only those of stale gangs are left.
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
