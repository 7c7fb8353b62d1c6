"""Which priority classes a project allows: one rule for admission, controller and extender."""

from collections.abc import Mapping, Sequence
from typing import Final

from extender.api import names

#: Classes of the cluster's own programs: a project allows one only by its name.
SYSTEM_CLASS_PREFIX: Final = "system-"


def class_refusal(
    priority_class: str,
    project: str,
    allowed: Sequence[str],
    values: Mapping[str, int | None],
) -> str:
    """Why the project does not allow the class, with what it accepts; empty where it does.

    `values` are those of the cluster's classes: one that has an alias's name, but not its value, is
    not ours.
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
