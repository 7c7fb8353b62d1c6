"""Projection of Jobs (batch/v1): how many pods they have, and whether evictions fail them.

Source: kubernetes/api batch/v1 JobSpec; KEP-3715 (elastic Indexed Jobs); kubernetes
`pkg/controller/job/pod_failure_policy.go`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from extender.api.objects import ObjectMeta, PodTemplateSpec

#: The condition of a pod that is evicted.
DISRUPTION: Final = "DisruptionTarget"
#: Exit codes of a container that SIGKILL or SIGTERM ended.
STOPPED: Final = frozenset((137, 143))
_SPAN: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


class JobSpec(Struct, rename="camel", kw_only=True):
    """How many pods a Job creates in all, and at once."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class JobStatus(Struct, rename="camel"):
    """The failed indices of an Indexed Job, for which no more pods are created."""

    failed_indexes: str = ""


class Job(Struct, rename="camel", kw_only=True):
    """A Job."""

    metadata: ObjectMeta
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


def pods_at_once(parallelism: int, completions: int | None, n_failed_indexes: int = 0) -> int:
    """How many pods a Job runs at once; only an Indexed Job has failed indices."""
    if completions is None:
        return parallelism
    return min(parallelism, completions - n_failed_indexes)


def count_indexes(text: str) -> int:
    """Number of indices in a text such as "1,3-5"; parts that are not understood count 0."""
    found = filter(None, map(_SPAN.fullmatch, text.split(",")))
    return sum(max(0, int(span[2] or span[1]) - int(span[1]) + 1) for span in found)


def counts_disruptions(rules: Iterable[Mapping[str, Any]]) -> bool:
    """Whether these rules of a podFailurePolicy count an evicted pod as failed.

    The first rule that matches decides. A rule on other conditions of the pod matches none.
    """
    for rule in rules:
        conditions, codes = rule.get("onPodConditions") or (), rule.get("onExitCodes")
        is_about_it = any(
            each.get("type") == DISRUPTION and each.get("status", "True") == "True"
            for each in conditions
        )
        is_ignored = rule.get("action") == "Ignore"
        if is_about_it:
            return not is_ignored
        if codes and not is_ignored and _may_be_stopped(codes):
            return True
    return True


def _may_be_stopped(codes: Mapping[str, Any]) -> bool:
    """Whether a rule on exit codes can match a container that was terminated."""
    listed = STOPPED & set(codes.get("values") or ())
    return bool(listed) if codes.get("operator") == "In" else listed != STOPPED
