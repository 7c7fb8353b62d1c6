"""The patches that let a reserved pod go to kube-scheduler, or take a row back from it.

Each carries the resourceVersion it was decided on, so a stale writer gets a conflict instead of
undoing a newer decision: this, with the compare-and-swap on rows, is what makes two live leaders
harmless (reliability notes, rule 2).
"""

from typing import Any

from extender.api.kinds import Row
from extender.api.names import (
    ANNOTATION_PLAN,
    ANNOTATION_REVOKED,
)
from extender.state.model import PodView

Patch = dict[str, Any]


def plan_text(epoch: int, node: str) -> str:
    """The value of the plan annotation."""
    return f"{epoch} {node}"


def release_patch(pod: PodView, epoch: int, node: str) -> Patch:
    """Merge patch that names the plan, removes our gate and pins the pod to `node`.

    The pin is a required node affinity on `metadata.name`, which saves kube-scheduler its search;
    it can't be undone, so a pod that nothing would make again is not pinned (see `nominate_patch`).
    """
    spec: Patch = {"schedulingGates": [{"name": name} for name in pod.other_gates] or None}
    if pod.is_controlled:
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": _pinned_terms(pod, node)
                }
            }
        }
    return {
        "metadata": {
            "resourceVersion": pod.resource_version,
            "annotations": {ANNOTATION_PLAN: plan_text(epoch, node), ANNOTATION_REVOKED: None},
        },
        "spec": spec,
    }


def nominate_patch(pod: PodView, node: str) -> Patch:
    """Merge patch of the status that makes kube-scheduler try `node` first, without pinning."""
    return {
        "metadata": {"resourceVersion": pod.resource_version},
        "status": {"nominatedNodeName": node},
    }


def revoke_patch(pod: PodView, node: str, row: Row, *, keeps_plan: bool = False) -> Patch:
    """Merge patch that must land before the row of an unbound pod may be freed.

    It moves the pod's resourceVersion on, so any release or Binding under way fails, and names
    the row, so that none begun later uses it. `keeps_plan`: the pod's plan is about another row.
    """
    annotations: Patch = {ANNOTATION_REVOKED: f"{node} {row.epoch} {row.reserved_at}"}
    if not keeps_plan:
        annotations[ANNOTATION_PLAN] = None
    return {"metadata": {"resourceVersion": pod.resource_version, "annotations": annotations}}


def forget_plan_patch(pod: PodView) -> Patch:
    """Merge patch that takes the plan off an unbound pod."""
    return {
        "metadata": {
            "resourceVersion": pod.resource_version,
            "annotations": {ANNOTATION_PLAN: None},
        }
    }


def _pinned_terms(pod: PodView, node: str) -> list[Patch]:
    """The pod's required terms (they are alternatives), each narrowed to `node`."""
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = pod.constraints.affinity
    terms = affinity.node_selector_terms if affinity else []
    if not terms:
        return [{"matchFields": [pin]}]
    pinned: list[Patch] = []
    for term in terms:
        fields = [
            {"key": field.key, "operator": field.operator, "values": field.values or []}
            for field in term.match_fields or ()
        ]
        narrowed: Patch = {"matchFields": [*fields, pin]}
        if term.match_expressions:
            narrowed["matchExpressions"] = [
                {"key": expr.key, "operator": expr.operator}
                | ({"values": expr.values} if expr.values else {})
                for expr in term.match_expressions
            ]
        pinned.append(narrowed)
    return pinned
