"""Where a pod may run, as it says itself and as its history says; what it leaves to kube-scheduler.

Equal constraints are one object, since thousands of pods of an owner have the same.
"""

from typing import Final

import msgspec

from extender.api import names
from extender.api.demand import MODEL_SELECTOR
from extender.api.objects import Affinity, Pod, PodAffinity, PodAffinityTerm
from extender.state.claims import read_doubts as read_spec_doubts
from extender.state.model import ANYWHERE, Constraints, PodTerm
from extender.state.narrowing import Narrowed, read_narrowing
from extender.state.refusals import read_refusals

#: Distinct constraints that are shared before the table is started anew, against hostile variety.
_MAX_SHARED: Final = 20_000
_shared: dict[bytes, Constraints] = {}
_NO_AFFINITY: Final = Affinity()


def split_names(text: str) -> tuple[str, ...]:
    """Comma separated names, in order, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()


def share(constraints: Constraints) -> Constraints:
    """The one object for constraints equal to these."""
    if constraints == ANYWHERE:
        return ANYWHERE
    if len(_shared) >= _MAX_SHARED:
        _shared.clear()
    return _shared.setdefault(msgspec.msgpack.encode(constraints), constraints)


def read_constraints(pod: Pod) -> Constraints:
    """Where the pod may run."""
    spec = pod.spec
    affinity = spec.affinity or _NO_AFFINITY
    to_nodes = affinity.node_affinity
    required = to_nodes.required if to_nodes else None
    narrowed = read_narrowing(required) if was_released(pod) else Narrowed(required)
    is_bound = bool(spec.node_name)
    refusals = read_refusals(pod.metadata.annotation(names.ANNOTATION_REFUSED))
    return share(
        Constraints(
            node_selector=tuple(sorted((spec.node_selector or {}).items())),
            affinity=narrowed.own,
            tolerations=tuple(spec.tolerations or ()),
            gpu_models=split_names(pod.metadata.annotation(MODEL_SELECTOR)),
            pod_affinity=_read_terms(affinity.pod_affinity),
            pod_anti_affinity=_read_terms(affinity.pod_anti_affinity),
            # Its successor starts anew.
            only_nodes=() if is_bound else narrowed.nodes,
            barred=() if is_bound else tuple((at.name, at.until) for at in refusals.nodes),
        )
    )


def was_released(pod: Pod) -> bool:
    """Whether the controller planned the pod once; the annotations are its own."""
    note = pod.metadata.annotation
    return bool(note(names.ANNOTATION_PLAN) or note(names.ANNOTATION_REVOKED))


def read_doubts(pod: Pod) -> str:
    """What of the pod's wishes a plan leaves to kube-scheduler, in words."""
    affinity = pod.spec.affinity or _NO_AFFINITY
    terms = [
        term
        for each in (affinity.pod_affinity, affinity.pod_anti_affinity)
        for term in (each.required or () if each else ())
    ]
    doubts = [read_spec_doubts(pod)]
    if any(_read_term(term) is None for term in terms):
        doubts.append("affinity to pods of other namespaces or by other than plain labels")
    return ", ".join(filter(None, doubts))


def _read_terms(affinity: PodAffinity | None) -> tuple[PodTerm, ...]:
    """The required terms that are about pods of the own namespace with certain labels.

    A plan leaves other terms aside: kube-scheduler, which knows all pods, has the last word on
    every one of them.
    """
    listed = affinity.required or () if affinity else ()
    return tuple(term for term in map(_read_term, listed) if term is not None)


def _read_term(term: PodAffinityTerm) -> PodTerm | None:
    selector = term.label_selector
    if selector is None or term.namespaces or term.namespace_selector is not None:
        return None
    labels = dict(selector.match_labels or {})
    for expression in selector.match_expressions or ():
        values = expression.values or []
        if expression.operator != "In" or len(values) != 1:
            return None
        labels[expression.key] = values[0]
    return PodTerm(term.topology_key, tuple(sorted(labels.items())))
