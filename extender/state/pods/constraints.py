"""Where a pod may run, by its spec and its history, and what a plan leaves to kube-scheduler.

Equal constraints are one object, since the thousands of pods of an owner have the same.
"""

from typing import Final

import msgspec

from extender.api import names
from extender.api.demand import MODEL_SELECTOR, Delivery
from extender.api.objects import Affinity, Pod, PodAffinity, PodAffinityTerm
from extender.state.model import ANYWHERE, Constraints, PodTerm
from extender.state.pods.claims import read_spec_doubts
from extender.state.pods.narrowing import Narrowed, read_narrowing
from extender.state.refusals import read_refusals

#: Bytes of distinct constraints that are shared before the table is cleared.
_MAX_SHARED_BYTES: Final = 8 * 2**20
#: Larger constraints or labels of one pod are not kept: 100,000 pods are in memory.
MAX_BYTES: Final = 16 * 2**10
_NO_AFFINITY: Final = Affinity()


def split_names(text: str) -> tuple[str, ...]:
    """Comma separated names, in order and without duplicates."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()


class _Shared:
    """One object for equal constraints, from a table of bounded size."""

    def __init__(self) -> None:
        self._known: dict[bytes, Constraints] = {}
        self._n_bytes = 0

    def one_for(self, constraints: Constraints) -> Constraints | None:
        """The shared object equal to these constraints; None if they are too large to keep."""
        if constraints == ANYWHERE:
            return ANYWHERE
        key = msgspec.msgpack.encode(constraints)
        if len(key) > MAX_BYTES:
            return None
        known = self._known.get(key)
        if known is not None:
            return known
        if self._n_bytes + len(key) > _MAX_SHARED_BYTES:
            self._known.clear()
            self._n_bytes = 0
        self._known[key] = constraints
        self._n_bytes += len(key)
        return constraints


_shared: Final = _Shared()


def share(constraints: Constraints) -> Constraints:
    """The shared object equal to these constraints; they themselves if too large to share."""
    return _shared.one_for(constraints) or constraints


def read_constraints(pod: Pod, delivery: Delivery, gpu_memory_mib: int) -> Constraints | None:
    """Where the pod may run; None if its constraints take more than `MAX_BYTES`.

    It gets its cards by `delivery`, and requests `gpu_memory_mib` MiB of them."""
    spec = pod.spec
    affinity = spec.affinity or _NO_AFFINITY
    to_nodes = affinity.node_affinity
    required = to_nodes.required if to_nodes else None
    narrowed = read_narrowing(required) if was_released(pod) else Narrowed(required)
    is_bound = bool(spec.node_name)
    refusals = read_refusals(pod.metadata.annotation(names.ANNOTATION_REFUSED))
    return _shared.one_for(
        Constraints(
            node_selector=tuple(sorted((spec.node_selector or {}).items())),
            affinity=narrowed.own,
            tolerations=tuple(spec.tolerations or ()),
            gpu_models=split_names(pod.metadata.annotation(MODEL_SELECTOR)),
            pod_affinity=_read_terms(affinity.pod_affinity),
            pod_anti_affinity=_read_terms(affinity.pod_anti_affinity),
            # These bind this pod only: its successor may run elsewhere.
            only_nodes=() if is_bound else narrowed.nodes,
            barred=() if is_bound else tuple((at.name, at.until) for at in refusals.nodes),
            delivery=delivery,
            share_mib=gpu_memory_mib if delivery == "share" else 0,
        )
    )


def was_released(pod: Pod) -> bool:
    """Whether the controller ever planned the pod: only the controller sets these annotations."""
    note = pod.metadata.annotation
    return bool(note(names.ANNOTATION_PLAN) or note(names.ANNOTATION_REVOKED))


def read_doubts(pod: Pod, delivery: Delivery) -> str:
    """The constraints of the pod that a plan leaves to kube-scheduler, in words."""
    affinity = pod.spec.affinity or _NO_AFFINITY
    terms = [
        term
        for each in (affinity.pod_affinity, affinity.pod_anti_affinity)
        for term in (each.required or () if each else ())
    ]
    doubts = [read_spec_doubts(pod, delivery)]
    if any(_read_term(term) is None for term in terms):
        doubts.append("affinity to pods of other namespaces or by other than plain labels")
    return ", ".join(filter(None, doubts))


def _read_terms(affinity: PodAffinity | None) -> tuple[PodTerm, ...]:
    """The required terms that select pods of the own namespace by plain labels.

    A plan ignores other terms. kube-scheduler checks all of them, because it knows all pods.
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
