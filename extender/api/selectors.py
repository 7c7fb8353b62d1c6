"""Matching of labels against the requirements of Kubernetes selectors."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from extender.api.objects import LabelSelector, Requirement

#: The most values of a label that a message lists.
MOST_VALUES: Final = 4


def lacking(
    wanted: Iterable[tuple[str, str]], nodes: Collection[Mapping[str, str]]
) -> Iterator[tuple[str, str, list[str]]]:
    """The wanted labels that none of the nodes has, and the values that nodes have instead.

    `nodes` are the labels of each node. The list is empty if there are no such values, or many.
    """
    for key, value in sorted(wanted):
        there = {labels[key] for labels in nodes if key in labels}
        if value not in there:
            yield key, value, sorted(there) if len(there) <= MOST_VALUES else []


def meets(rule: Requirement, labels: Mapping[str, str]) -> bool | None:
    """Whether the labels meet one requirement; None for an unknown operator.

    `Gt` and `Lt` are for nodes only; the API server refuses them in label selectors.
    """
    value, values = labels.get(rule.key), rule.values or []
    match rule.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(rule.operator, value, values)
    return None


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches, as in Kubernetes: an empty one matches everything."""
    wanted = selector.match_labels or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    # The API server has no operator that `meets` does not know; an unknown one matches, to be safe.
    return all(meets(each, labels) is not False for each in selector.match_expressions or ())


def _compares(operator: str, value: str | None, values: list[str]) -> bool:
    """Whether Gt or Lt holds; false unless both values are integers."""
    try:
        have, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else have < bound
