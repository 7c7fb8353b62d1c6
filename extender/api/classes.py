"""Which priority classes a project allows: the rule of the webhook, controller and extender."""

from collections.abc import Mapping, Sequence
from typing import Final

from extender.api import names

#: Prefix of Kubernetes' own classes, which a project allows only by listing them.
SYSTEM_CLASS_PREFIX: Final = "system-"


def class_refusal(
    priority_class: str,
    project: str,
    allowed: Sequence[str],
    values: Mapping[str, int | None],
) -> str:
    """Why the project does not allow the class, and which it accepts; empty if it allows it.

    `values` has the values of the cluster's classes: a class with the name of an alias, but another
    value, is not treated as the alias.
    """

    def ours(name: str) -> str:
        return names.class_of(name, values.get(name))

    if priority_class in allowed or ours(priority_class) in map(ours, allowed):
        return ""
    if not allowed and not priority_class.startswith(SYSTEM_CLASS_PREFIX):
        return ""
    accepted = " or ".join(allowed or names.PRIORITY_CLASSES)
    return (
        f"priorityClassName: {priority_class!r:.80} is not allowed in project {project};"
        f" use {accepted}"
    )
