"""Events for victims and preemptors: names within a project, figures across projects."""

import pytest

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.api.objects import OwnerReference
from extender.api.reasons import Reason
from extender.cycle.evictions.events import beneficiary_note, victim_note
from extender.policy.plan import Eviction
from extender.state.model import PodView, WorkloadView

JOB = OwnerReference(api_version="batch/v1", kind="Job", name="filler", uid="u", controller=True)


def pod(name: str, namespace: str) -> PodView:
    return PodView(
        uid=f"uid-{name}",
        namespace=namespace,
        name=name,
        demand=Demand(devices=1, milli=1000),
        cards=(CardShare(0, 1000, 1),),
    )


def workload(name: str, project: str, priority: int = 50) -> WorkloadView:
    key = f"{project}/{name}"
    return WorkloadView(
        key=key,
        namespace=project,
        name=name,
        project=project,
        priority=priority,
        pods=(pod(name, project),),
    )


VICTIM = workload("filler-1", "vision")


def eviction(reason: Reason, note: str = "") -> Eviction:
    return Eviction(VICTIM.pods[0], VICTIM.key, reason, "any", note)


def test_a_reclaimed_pod_learns_the_project_and_the_figures_but_no_name() -> None:
    note = "search holds 60 GPUs (quota 71); vision holds 84 GPUs (quota 76)"
    other = workload("secret-model", "search")
    told = victim_note(eviction(Reason.RECLAIMED, note), VICTIM, other, JOB)
    assert told == (
        f"reclaimed for project search (1 GPU): {note}."
        " Job filler creates the pod again, and the new pod is queued."
    )


def test_a_preempted_pod_learns_for_which_workload_of_its_project() -> None:
    told = victim_note(eviction(Reason.PREEMPTED), VICTIM, workload("urgent", "vision", 75), None)
    assert told == (
        "preempted for vision/urgent (1 GPU): its priority is 75, this pod's is 50."
        " No controller owns the pod, so Kubernetes does not create it again."
    )


def test_the_owner_of_a_moved_pod_is_not_told_that_the_new_pod_is_queued() -> None:
    note = "a place on node n1 is kept for the pod that replaces it"
    told = victim_note(eviction(Reason.MOVED, note), VICTIM, workload("whole", "vision"), JOB)
    assert told == (
        f"moved to make room for vision/whole (1 GPU): {note}. Job filler creates the pod again."
    )


@pytest.mark.parametrize(
    ("api_version", "kind", "after"),
    [
        (
            "v1",
            "ReplicationController",
            "ReplicationController own creates the pod again, and the new pod is queued.",
        ),
        (
            "apps/v1",
            "StatefulSet",
            "StatefulSet own creates the pod again, and the new pod is queued.",
        ),
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            "Workflow own decides whether to create the pod again; a new pod is queued.",
        ),
        (
            "tekton.dev/v1",
            "TaskRun",
            "TaskRun own decides whether to create the pod again; a new pod is queued.",
        ),
        ("v1", "Pod", "Pod own decides whether to create the pod again; a new pod is queued."),
    ],
)
def test_only_of_owners_of_kubernetes_is_it_certain_that_they_create_the_pod_again(
    api_version: str, kind: str, after: str
) -> None:
    maker = OwnerReference(api_version=api_version, kind=kind, name="own", uid="u", controller=True)
    told = victim_note(eviction(Reason.PREEMPTED), VICTIM, workload("urgent", "vision", 75), maker)
    assert told.endswith(f"this pod's is 50. {after}")


def test_the_beneficiary_sees_what_leaves_of_others_as_gpus() -> None:
    left = [(pod(f"p{ix}", "vision"), VICTIM) for ix in range(2)]
    left.append((pod("mine", "search"), workload("mine", "search")))
    told = beneficiary_note(workload("serve", "search"), left)
    assert told == "3 pods leave for it: mine, 2 GPUs of project vision"


def test_the_beneficiary_sees_three_names_of_its_own_project_and_a_count() -> None:
    left = [(pod(f"p{ix}", "search"), workload(f"p{ix}", "search")) for ix in range(5)]
    told = beneficiary_note(workload("serve", "search"), left)
    assert told == "5 pods leave for it: p0, p1, p2, 2 more"
