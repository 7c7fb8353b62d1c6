"""Warnings for the authors of pods."""

import pytest

from extender.api import names
from tests.support.admission import PodDocument, decision_on, pod

HALF = {"gpu-fraction": "0.5"}


def with_labels(**labels: str) -> PodDocument:
    keyed = {f"ballast.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    return pod().noted(HALF).labelled(keyed)


LOST = (
    "this pod may be evicted for other work, and no controller creates it again: let a Job create"
    " it, or set its label ballast.dev/preemptibility: non-preemptible, and it runs within the"
    " project's quota only"
)


@pytest.mark.parametrize(
    ("built", "warned"),
    [
        (pod().noted(HALF), (LOST,)),
        (pod().asking("nvidia.com/gpu", "1"), (LOST,)),
        (with_labels(workload_kind="interactive"), (LOST,)),
        (with_labels(preemptibility="preemptible", workload_kind="inference"), (LOST,)),
        (with_labels(preemptibility="non-preemptible"), ()),
        (with_labels(workload_kind="inference"), ()),
        (pod().noted(HALF).owned_by("Job"), ()),
        (pod().labelled({names.LABEL_PROJECT: "vision"}), ()),
        # The GpuPodGroup may say that its pods are not preemptible.
        (with_labels(pod_group="mine").noted({names.ANNOTATION_MIN_MEMBER: "2"}), ()),
    ],
)  # fmt: skip
def test_author_of_a_preemptible_pod_that_nothing_creates_again_is_warned(
    built: PodDocument, warned: tuple[str, ...]
) -> None:
    assert decision_on(built).warnings == warned


def test_words_that_only_programs_write_are_not_suggested() -> None:
    (warning,) = decision_on(pod().noted({"ballast.dev/cost-centre": "60"})).warnings
    assert names.ANNOTATION_HOLD in warning
    assert names.ANNOTATION_PLAN not in warning


def test_memory_that_was_meant_in_gib_is_warned_of() -> None:
    (warning,) = decision_on(pod().noted({"gpu-memory": "8"}).owned_by("Job")).warnings
    assert warning == 'gpu-memory: 8 means 8 MiB: for 8 GiB write "8192"'
    assert decision_on(pod().noted({"gpu-memory": "8192"}).owned_by("Job")).warnings == ()


def test_node_pool_that_is_not_there_is_warned_of() -> None:
    built = pod().noted(HALF | {names.ANNOTATION_NODE_POOLS: "h900"}).owned_by("Job")
    (warning,) = decision_on(built).warnings
    assert warning.startswith("node pool h900 does not exist (yet)")
    assert "did you mean" not in warning
    (warning,) = decision_on(built.noted({names.ANNOTATION_NODE_POOLS: "defualt"})).warnings
    assert warning.endswith("; did you mean default?")
    built.noted({names.ANNOTATION_NODE_POOLS: names.DEFAULT_POOL})
    assert decision_on(built).warnings == ()


@pytest.mark.parametrize(
    ("notes", "labels", "words"),
    [
        ({"gpu-fractoin": "0.5"}, {}, "did you mean the annotation gpu-fraction?"),
        ({"gpu_memory": "8192"}, {}, "did you mean the annotation gpu-memory?"),
        ({}, {"gpu-fraction": "0.5"}, "Ballast reads gpu-fraction as an annotation"),
        ({"ballast.dev/project": "vision"}, {}, "as a label"),
        ({"ballast.dev/cost-centre": "60"}, {}, "is not read; Ballast reads"),
        ({"GPU-Fraction": "0.5"}, {}, "did you mean the annotation gpu-fraction?"),
        ({"gpu-mem": "8192"}, {}, "did you mean the annotation gpu-memory?"),
        ({}, {"workload-kind": "interactive"}, "mean the label ballast.dev/workload-kind?"),
        ({"min-member": "4"}, {}, "did you mean the annotation ballast.dev/min-member?"),
        ({"gpu-memory-limit": "8192"}, {}, "has no effect: the pod requests no GPU"),
        ({"gpu-compute-request": "0.25"}, {}, "has no effect: the pod requests no GPU"),
        ({"ballast.dev/gpufraction": "0.5"}, {}, "mean the annotation ballast.dev/gpu-fraction?"),
        ({}, {"ballast.dev/podgroup": "a"}, "did you mean the label ballast.dev/pod-group?"),
        ({"nvidia.com/gpu-fraction": "0.5"}, {}, "did you mean the annotation gpu-fraction?"),
        ({"run.ai/gpu-memory": "8192"}, {}, "did you mean the annotation gpu-memory?"),
        ({}, {"runai/gpu-fraction": "0.5"}, "did you mean the annotation gpu-fraction?"),
        ({"kai.scheduler/gpu-fraction-num-devices": "2"}, {}, "gpu-fraction-num-devices?"),
    ],
)
@pytest.mark.parametrize("namespace", ["team-a", "elsewhere"])
def test_word_that_is_nearly_ours_is_warned_of(
    notes: dict[str, str], labels: dict[str, str], words: str, namespace: str
) -> None:
    found = decision_on(pod(namespace=namespace).noted(notes).labelled(labels))
    assert (found.is_allowed, found.ops) == (True, ())
    assert words in " ".join(found.warnings)


@pytest.mark.parametrize(
    "key", ["nvidia.com/gpu-fraction", "runai/gpu-memory", "ballast.dev/gpu-memory", "gpu-fraction"]
)
@pytest.mark.parametrize("namespace", ["team-a", "elsewhere"])
def test_annotation_that_is_requested_as_a_resource_is_warned_of(key: str, namespace: str) -> None:
    asking = pod(namespace=namespace).asking(key, "0.5")
    word = key.rpartition("/")[2]
    warned = (f"resource {key} is not read; did you mean the annotation {word}?",)
    assert decision_on(asking).warnings == warned
    owned = asking.asking("nvidia.com/gpu", "1").owned_by("Job")
    assert warned[0] in decision_on(owned).warnings


@pytest.mark.parametrize(
    "key",
    [
        *("gpu", "gpu-type", "gpu-count", "gpu.intel.com/i915", "gpu-model"),
        *(
            "nvidia.com/gpu-driver-upgrade-enabled",
            "nvidia.com/gpu.memory",
            "example.com/gpu-memory",
        ),
    ],
)
def test_word_of_others_that_begins_like_ours_is_nobodys_mistake(key: str) -> None:
    assert decision_on(pod().noted({key: "x"}).labelled({key: "x"})).warnings == ()


def test_min_member_without_a_group_is_warned_of() -> None:
    built = pod().noted(HALF | {names.ANNOTATION_MIN_MEMBER: "4"}).owned_by("Job")
    (warning,) = decision_on(built).warnings
    assert "no effect without ballast.dev/pod-group" in warning
