"""Projection of Jobs (batch/v1): how many pods they have.

Source: kubernetes/api batch/v1 JobSpec; KEP-3715 (elastic Indexed Jobs).
"""

import re
from typing import Final

from msgspec import Struct, field

from extender.api.objects import ObjectMeta, PodTemplateSpec

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
