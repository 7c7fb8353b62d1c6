"""Separates what the release of a pod added to its node affinity from the pod's own terms.

`extender.cycle.pods.release` appends to every required term a requirement on `metadata.name`, once
for each node in the plan.
"""

from msgspec import Struct

from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement


class Narrowed(Struct, frozen=True):
    """The pod's own required terms (None: none), and the nodes it was released for (empty: any)."""

    own: NodeSelector | None
    nodes: tuple[str, ...] = ()


def read_narrowing(required: NodeSelector | None) -> Narrowed:
    """The parts of a released pod's required node affinity."""
    terms = required.node_selector_terms if required else []
    names: dict[str, None] = {}
    own: list[NodeSelectorTerm] = []
    for term in terms:
        fields = term.match_fields or []
        if not fields or not _is_name(fields[-1]):
            return Narrowed(required)
        name = (fields[-1].values or [""])[0]
        names[name] = None
        if len(names) == 1 and (term.match_expressions or len(fields) > 1):
            own.append(NodeSelectorTerm(term.match_expressions, fields[:-1] or None))
    return Narrowed(NodeSelector(own) if own else None, tuple(names))


def _is_name(field: Requirement) -> bool:
    return field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1
