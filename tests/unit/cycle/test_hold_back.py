"""The part of a plan that is carried out while kube-scheduler is away."""

from extender.api.reasons import Reason
from extender.cycle.recovery.hold_back import hold_back
from extender.policy.plan import Admission, Eviction, Move, Placement, Plan
from extender.state.model import PodView, WorkloadView


def pod(name: str) -> PodView:
    return PodView(uid=name, namespace="ns", name=name)


def admission(name: str, state: str = "reserved") -> Admission:
    workload = WorkloadView(key=f"ns/{name}", namespace="ns", name=name, pods=(pod(name),))
    return Admission(workload, (Placement(pod(name), "n1", ()),), state)  # type: ignore[arg-type]


def eviction(name: str, beneficiary: str, reason: Reason = Reason.RECLAIMED) -> Eviction:
    return Eviction(pod(name), f"ns/{name}", reason, beneficiary, "")


def test_nothing_is_released_or_evicted_for_others_and_the_reason_is_reported() -> None:
    plan = Plan(
        admissions=[admission("a"), admission("b", "nominated")],
        evictions=[
            eviction("victim", "ns/b"),
            eviction("above-its-share", ""),
            eviction("stale", "", Reason.GANG_STALE),
        ],
        moves=[Move(Placement(pod("moved"), "n2", ()), "ns/moved", Reason.MOVED, "ns/a")],
    )
    held = hold_back(plan, 0)
    assert held.moves == []
    assert held.admissions == []
    assert [each.pod.name for each in held.evictions] == ["stale"]
    assert {key: why.reason for key, why in held.waits.items()} == dict.fromkeys(
        ("ns/a", "ns/b"), Reason.SCHEDULER_AWAY
    )


def test_one_workload_may_be_released_to_see_whether_it_is_back() -> None:
    held = hold_back(Plan(admissions=[admission("a"), admission("b")]), 1)
    assert [each.workload.name for each in held.admissions] == ["a"]
    assert set(held.waits) == {"ns/b"}
