"""Patches that release a reserved pod to kube-scheduler, or take its row back.

Each carries the resourceVersion on which it was decided, so a stale writer gets a conflict instead
of undoing a newer decision. Together with the compare-and-swap on rows, this makes two live leaders
harmless (reliability notes, rule 2). All are strategic merge patches, so a release removes only our
gate, whatever other gates the pod has.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from extender.api.kinds import Row
from extender.api.ledger import plan_text
from extender.api.names import ANNOTATION_PLAN, ANNOTATION_REFUSED, ANNOTATION_REVOKED, GATE
from extender.api.objects import NodeSelectorTerm
from extender.state.model import PodView
from extender.state.refusals import Refusals, write_refusals

Patch = dict[str, Any]
_NO_GATE: Final[Patch] = {"$patch": "delete", "name": GATE}


def release_patch(pod: PodView, epoch: int, node: str, nodes: Sequence[str]) -> Patch:
    """Sets the plan and, the first time, removes our gate.

    Only the first release can restrict the pod's node affinity, to `nodes` (which include the
    planned one), and save kube-scheduler a search of the cluster. If `nodes` is empty, the affinity
    stays. Of these nodes the extender accepts only the planned one.
    """
    patch: Patch = {
        "metadata": {
            "resourceVersion": pod.resource_version,
            "annotations": {ANNOTATION_PLAN: plan_text(epoch, node), ANNOTATION_REVOKED: None},
        }
    }
    if pod.is_gated:
        patch["spec"] = {"schedulingGates": [_NO_GATE]}
        if nodes:
            terms = {"nodeSelectorTerms": _narrowed_terms(pod, nodes)}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            patch["spec"]["affinity"] = {"nodeAffinity": required}
    return patch


def revoke_patch(
    pod: PodView,
    node: str,
    row: Row,
    *,
    keeps_plan: bool = False,
    refusals: Refusals | None = None,
) -> Patch:
    """The patch that must succeed before the row of an unbound pod may be freed.

    It changes the pod's resourceVersion, so any release or Binding in flight fails, and names the
    row, so that no later one uses it. `keeps_plan`: the pod's plan names another row. `refusals`
    records for later plans where kube-scheduler did not bind the pod.
    """
    annotations: Patch = {ANNOTATION_REVOKED: row.revocation_on(node)}
    if not keeps_plan:
        annotations[ANNOTATION_PLAN] = None
    if refusals is not None:
        annotations[ANNOTATION_REFUSED] = write_refusals(refusals)
    return {"metadata": {"resourceVersion": pod.resource_version, "annotations": annotations}}


def forget_plan_patch(pod: PodView) -> Patch:
    """Removes the plan from an unbound pod without a row, so that it is planned again."""
    return {
        "metadata": {
            "resourceVersion": pod.resource_version,
            "annotations": {ANNOTATION_PLAN: None, ANNOTATION_REVOKED: "- 0 0"},
        }
    }


def ungate_patch(pod: PodView, labels: Mapping[str, str]) -> Patch:
    """Removes our gate without a plan: kube-scheduler finds no node for the pod until it has one.

    `labels` are those of the nodes that an autoscaler should add for it.
    """
    patch = forget_plan_patch(pod)
    patch["spec"] = {"schedulingGates": [_NO_GATE], "nodeSelector": dict(labels)}
    return patch


def _narrowed_terms(pod: PodView, nodes: Sequence[str]) -> list[Patch]:
    """The pod's required terms (which are alternatives), once for every node.

    A requirement on `metadata.name` may have only one value. `extender.state.pods.narrowing` reads
    these terms back.
    """
    affinity = pod.constraints.affinity
    own = affinity.node_selector_terms if affinity else [NodeSelectorTerm()]
    return [_narrowed(term, node) for node in nodes for term in own]


def _narrowed(term: NodeSelectorTerm, node: str) -> Patch:
    fields = [
        {"key": field.key, "operator": field.operator, "values": field.values or []}
        for field in term.match_fields or ()
    ]
    fields.append({"key": "metadata.name", "operator": "In", "values": [node]})
    narrowed: Patch = {"matchFields": fields}
    if term.match_expressions:
        narrowed["matchExpressions"] = [
            {"key": expr.key, "operator": expr.operator}
            | ({"values": expr.values} if expr.values else {})
            for expr in term.match_expressions
        ]
    return narrowed
