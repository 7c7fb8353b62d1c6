"""Reads the form of the what-if page as a simulation."""

from collections.abc import Mapping
from typing import Final

import msgspec

from extender.view.answers import AddedNodes, Job, SimulationSpec

_QUOTA: Final = "quota:"


class FormError(ValueError):
    """A field is invalid; the message says which, and what is accepted."""


def read(form: Mapping[str, str]) -> SimulationSpec:
    """The changes that the form describes; raises FormError.

    An unchanged quota is no change: `quota:QUEUE` is compared with `was:QUEUE`.
    """
    given = {key: value.strip() for key, value in form.items()}
    spec = SimulationSpec(
        quotas={
            key.removeprefix(_QUOTA): value
            for key, value in given.items()
            if key.startswith(_QUOTA) and value and value != given.get("was:" + key[len(_QUOTA) :])
        },
        drain=[name for name in given.get("drain", "").replace(",", " ").split() if name],
    )
    if like := given.get("like", ""):
        spec.add_nodes = [AddedNodes(like=like, count=_number(given, "count", "more nodes"))]
    if project := given.get("project", ""):
        spec.jobs = [
            Job(
                project=project,
                pods=_number(given, "pods", "pods"),
                gpus=given.get("gpus", "") or "1",
                priority=_number(given, "priority", "priority") if given.get("priority") else None,
            )
        ]
    if spec == SimulationSpec():
        raise FormError("Change at least one thing: a quota, a node, or a job.")
    return spec


def command(spec: SimulationSpec) -> str:
    """The same question as a command line, without priorities, which have no option there."""
    words = ["kubectl ballast whatif"]
    words += [f"--quota {name}={gpus}" for name, gpus in spec.quotas.items()]
    words += [f"--drain {name}" for name in spec.drain]
    words += [f"--add-nodes {each.like}={each.count}" for each in spec.add_nodes]
    words += [f"--job {each.project}={each.pods}x{each.gpus}" for each in spec.jobs]
    return " ".join(words)


def _number(given: Mapping[str, str], key: str, what: str) -> int:
    text = given.get(key, "") or "1"
    try:
        return msgspec.convert(text, int, strict=False)
    except msgspec.ValidationError:
        raise FormError(f"{what}: {text!r} is not a whole number, such as 2") from None
