"""The patches that let a reserved pod go to kube-scheduler, or take a row back from it.

Each carries the resourceVersion it was decided on, so a stale writer gets a conflict instead of
undoing a newer decision: this, with the compare-and-swap on rows, is what makes two live leaders
harmless (reliability notes, rule 2). All are strategic merge patches, so that a release removes
our gate whatever other gates the pod has.
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
    """Names the plan, and the first time removes our gate and no other.

    The first time is also the only one at which the pod's node affinity can be narrowed: to
    `nodes`, the planned node among them, which saves kube-scheduler its search of the cluster;
    empty: it stays as it is. Of those nodes the extender keeps the planned one alone.
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
    """The patch that must land before the row of an unbound pod may be freed.

    It moves the pod's resourceVersion on, so any release or Binding under way fails, and names
    the row, so that none begun later uses it. `keeps_plan`: the pod's plan is about another row.
    `refusals`: where kube-scheduler did not bind the pod, for the plans to come.
    """
    annotations: Patch = {ANNOTATION_REVOKED: row.revocation_on(node)}
    if not keeps_plan:
        annotations[ANNOTATION_PLAN] = None
    if refusals is not None:
        annotations[ANNOTATION_REFUSED] = write_refusals(refusals)
    return {"metadata": {"resourceVersion": pod.resource_version, "annotations": annotations}}


def forget_plan_patch(pod: PodView) -> Patch:
    """Takes the plan off an unbound pod without a row: it waits for another."""
    return {
        "metadata": {
            "resourceVersion": pod.resource_version,
            "annotations": {ANNOTATION_PLAN: None, ANNOTATION_REVOKED: "- 0 0"},
        }
    }


def ungate_patch(pod: PodView, labels: Mapping[str, str]) -> Patch:
    """Removes our gate without a plan: kube-scheduler finds no node for the pod until it has one.

    `labels` are of the nodes that an autoscaler is to add for it.
    """
    patch = forget_plan_patch(pod)
    patch["spec"] = {"schedulingGates": [_NO_GATE], "nodeSelector": dict(labels)}
    return patch


def _narrowed_terms(pod: PodView, nodes: Sequence[str]) -> list[Patch]:
    """The pod's required terms (they are alternatives), each once for every node.

    A requirement on `metadata.name` may have one value only; `extender.state.pods.narrowing` reads
    these.
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
