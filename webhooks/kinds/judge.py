"""Reviews of Ballast's own kinds: decode the object, apply its rules, and answer.

An update that does not change the spec is allowed without a check, so labels and finalizers of an
object that was valid at its creation can always be changed.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from extender.api.kinds import GpuDepartment, GpuNodePool, GpuPodGroup, GpuProject, GpuTopology
from extender.api.names import GROUP
from extender.api.reasons import Reason, Refused
from webhooks.kinds import groups, nodes, queues
from webhooks.kinds.finding import FieldFinding
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, Request, allowed, malformed, refused, warned

#: Longer lists of findings are cut; once these are fixed, the next review shows the others.
MAX_FINDINGS: Final = 8
Rule = Callable[[Any, ProjectIndex], Iterable[FieldFinding]]

_MADE: Final[dict[str, tuple[type[Any], Rule]]] = {
    "GpuDepartment": (
        GpuDepartment,
        lambda each, known: queues.check_department(each, known.catalog),
    ),
    "GpuProject": (GpuProject, lambda each, known: queues.check_project(each, known.catalog)),
    "GpuNodePool": (GpuNodePool, lambda each, known: nodes.check_pool(each, known.catalog)),
    "GpuTopology": (GpuTopology, lambda each, known: nodes.check_topology(each, known.catalog)),
    "GpuPodGroup": (GpuPodGroup, groups.check_group),
}
_GONE: Final[dict[str, Rule]] = {
    "GpuDepartment": lambda each, known: queues.check_department_gone(each, known.catalog),
    "GpuNodePool": lambda each, known: nodes.check_pool_gone(each, known.catalog),
}
#: Rules that compare an object before and after an update.
_CHANGED: Final[dict[str, Callable[[Any, Any], Iterable[FieldFinding]]]] = {
    "GpuProject": queues.check_removed_namespaces
}
_DECODERS: Final = {kind: msgspec.json.Decoder(of) for kind, (of, _) in _MADE.items()}


def judge_kind(request: Request, known: ProjectIndex) -> Decision:
    """The decision about the object in `request`; kinds of other API groups are allowed."""
    kind = request.kind.kind
    is_gone = request.operation == "DELETE"
    rule = _GONE.get(kind) if is_gone else _MADE[kind][1] if kind in _MADE else None
    if rule is None or request.kind.group != GROUP or request.sub_resource:
        return allowed()
    left: list[FieldFinding] = []
    try:
        made = _DECODERS[kind].decode(request.old_object if is_gone else request.object)
        if request.operation == "UPDATE":
            before = _DECODERS[kind].decode(request.old_object)
            if before.spec == made.spec:
                return allowed()
            left += _CHANGED[kind](before, made) if kind in _CHANGED else ()
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return malformed(f"object is not a {kind}: {error}")
    meta = made.metadata
    meta.namespace = request.namespace
    meta.name = meta.name or request.name or meta.generate_name.rstrip("-")
    return _decide(f"{kind} {meta.name:.80}", [*rule(made, known), *left])


def _decide(what: str, findings: list[FieldFinding]) -> Decision:
    reasons = [each.text for each in findings if each.is_refused]
    if reasons:
        more = f" (and {len(reasons) - MAX_FINDINGS} more)" if len(reasons) > MAX_FINDINGS else ""
        text = "; ".join(reasons[:MAX_FINDINGS])
        return refused(Refused(Reason.INVALID_REQUEST, f"{what}: {text}{more}"))
    texts = [each.text for each in findings if not each.is_refused]
    return warned(*texts[:MAX_FINDINGS]) if texts else allowed()
