"""Requests in other schedulers' terms, and their translation."""

from typing import Any

import pytest

from extender.api import names
from tests.support.admission import PodDocument, decision_on, pod, stored
from webhooks.vocabulary import DIALECTS, is_foreign

Notes = dict[str, str]
REQUEST, LIMIT = "gpu-compute-request", "gpu-compute-limit"


def asking(resources: dict[str, str], container: int = 0) -> PodDocument:
    """A pod of which one container asks for these."""
    built = pod()
    for resource, amount in resources.items():
        built.asking(resource, amount, container)
    return built


UNDERSTOOD: dict[str, tuple[dict[str, str], Notes]] = {
    "HAMi memory": (
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"},
        {"gpu-memory": "3000"},
    ),
    "HAMi memory and cores of two": (
        {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"},
        {"gpu-memory": "3000", "gpu-fraction-num-devices": "2", LIMIT: "0.3"},
    ),
    "HAMi percent": ({"nvidia.com/gpumem-percentage": "25"}, {"gpu-fraction": "0.25"}),
    "HAMi by its own domain": ({"hami.io/gpu": "1", "hami.io/gpumem": "1"}, {"gpu-memory": "1"}),
    "Volcano": (
        {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1024"},
        {"gpu-memory": "1024"},
    ),
    "Tencent, a share": ({"tencent.com/vcuda-core": "50"}, {"gpu-fraction": "0.5"}),
    "Tencent, with memory": (
        {"tencent.com/vcuda-core": "5", "tencent.com/vcuda-memory": "10"},
        {"gpu-memory": "2560", REQUEST: "0.05"},
    ),
    "Aliyun": ({"aliyun.com/gpu-mem": "3"}, {"gpu-memory": "3072"}),
    "Koordinator": (
        {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"},
        {"gpu-fraction": "0.5"},
    ),
    "Koordinator in bytes": (
        {"koordinator.sh/gpu-core": "20", "koordinator.sh/gpu-memory": "8Gi"},
        {"gpu-memory": "8192", REQUEST: "0.2"},
    ),
    "nos": ({"nvidia.com/gpu-10gb": "1"}, {"gpu-memory": "10240"}),
}


@pytest.mark.parametrize(("asked", "notes"), UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_share_is_translated(asked: dict[str, str], notes: Notes) -> None:
    after = stored(asking(asked))
    told = after["metadata"]["annotations"]
    assert {key: told[key] for key in notes} == notes
    assert after["spec"]["schedulingGates"] == [{"name": names.GATE}]
    left = set(after["spec"]["containers"][0]["resources"]["limits"])
    assert left == {names.GPU_MILLI}


@pytest.mark.parametrize(
    ("asked", "cards"),
    [
        ({"tencent.com/vcuda-core": "200"}, "2"),
        ({"koordinator.sh/gpu": "100"}, "1"),
        ({"nvshare.com/gpu": "1"}, "1"),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "100"}, "2"),
        ({"aliyun.com/gpu-count": "4"}, "4"),
    ],
)
def test_whole_cards_become_the_device_plugins(asked: dict[str, str], cards: str) -> None:
    after = stored(asking(asked))
    limits = after["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {names.NVIDIA_GPU: cards, names.GPU_MILLI: f"{cards}000"}


def test_share_goes_to_the_container_that_asked() -> None:
    after = stored(asking({"nvidia.com/gpumem": "3000"}, 1))
    assert after["metadata"]["annotations"]["gpu-fraction-container-name"] == "c1"
    assert after["spec"]["containers"][1]["resources"]["limits"] == {names.GPU_MILLI: "1"}
    assert after["spec"]["containers"][0]["resources"] == {}


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({"nvidia.com/container.main.gpu-memory.request": "8Gi"}, {"gpu-memory": "8192"}),
        (
            {
                "nvidia.com/container.main.gpu-memory.limit": "8Gi",
                "nvidia.com/container.main.gpus.devices": "2",
                "nvidia.com/container.main.gpu-compute.mode": "time-slicing",
            },
            {"gpu-memory": "8192", "gpu-fraction-num-devices": "2"},
        ),
        (
            {
                "nvidia.com/container.main.gpu-memory.request": "8Gi",
                "nvidia.com/container.main.gpu-memory.limit": "16Gi",
            },
            {"gpu-memory": "8192", "gpu-memory-limit": "16384"},
        ),
    ],
)
def test_annotations_of_other_schedulers_are_translated(notes: Notes, expected: Notes) -> None:
    told = stored(pod().noted(notes))["metadata"]["annotations"]
    assert {key: told[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (
            {
                "sharedgpu/gpu_request": "0.5",
                "sharedgpu/gpu_limit": "1.0",
                "sharedgpu/gpu_mem": "1073741824",
                "sharedgpu/priority": "50",
            },
            {"gpu-memory": "1024", LIMIT: "1", REQUEST: "0.5"},
        ),
        (
            {"sharedgpu/gpu_request": "0.25", "sharedgpu/gpu_limit": "0.5"},
            {"gpu-fraction": "0.25", LIMIT: "0.5"},
        ),
    ],
)
def test_labels_of_kubeshare_are_translated(labels: Notes, expected: Notes) -> None:
    told = stored(pod().labelled(labels))["metadata"]["annotations"]
    assert {key: told[key] for key in expected} == expected


@pytest.mark.parametrize("count", ["1", "2.0", "4"])
def test_whole_number_of_kubeshare_is_so_many_whole_cards(count: str) -> None:
    built = pod().labelled({"sharedgpu/gpu_request": count, "sharedgpu/gpu_limit": count})
    limits = stored(built)["spec"]["containers"][0]["resources"]["limits"]
    assert limits[names.NVIDIA_GPU] == count.removesuffix(".0")


@pytest.mark.parametrize(
    "labels",
    [
        {"sharedgpu/priority": "50", "sharedgpu/group_name": "a"},
        {"sharedgpu/gpu_request": "0", "sharedgpu/gpu_limit": "0.0"},
    ],
)
def test_pod_of_kubeshare_without_a_gpu_is_left_alone(labels: Notes) -> None:
    assert decision_on(pod().labelled(labels)).ops == decision_on(pod()).ops == ()


def test_what_kubeshare_writes_on_a_bound_pod_is_no_request() -> None:
    bound = {"sharedgpu/gpu_mem": "1073741824", "sharedgpu/gpu_uuid": "GPU-1"}
    assert decision_on(pod().noted(bound)).ops == ()


REFUSED: dict[str, tuple[PodDocument, str]] = {
    "two vocabularies": (
        asking({"nvidia.com/gpumem": "1", "volcano.sh/vgpu-memory": "1"}),
        "several schedulers",
    ),
    "two containers": (
        asking({"nvidia.com/gpumem": "1"}).asking("nvidia.com/gpumem", "1", 1),
        "keep one of",
    ),
    "an init container": (
        pod().with_spec(
            initContainers=[{"name": "i", "resources": {"limits": {"nvidia.com/gpumem": "1"}}}]
        ),
        "only one of the containers can",
    ),
    "more than a card": (
        asking({"nvidia.com/gpumem": "9", "nvidia.com/gpucores": "101"}),
        "1 to",
    ),
    "a card and a half": (asking({"tencent.com/vcuda-core": "150"}), "neither a share of one"),
    "part of a unit": (asking({"nvidia.com/gpumem": "1500m"}), "whole number"),
    "more than all of a card's memory": (
        asking({"nvidia.com/gpumem-percentage": "150"}),
        "nvidia.com/gpumem-percentage: 150 is not a whole number from 1 to 100",
    ),
    "compute of a whole card": (asking({"nvidia.com/gpucores": "30"}), "share its memory too"),
    "ours beside it": (
        asking({"nvidia.com/gpumem": "1"}).noted({"gpu-memory": "2"}),
        "contradicts nvidia.com/gpumem",
    ),
    "another's beside it": (
        asking({"nvidia.com/gpumem": "1"}).noted({"gpu-fraction": "0.5"}),
        "use one of them",
    ),
    "no container of the name": (
        pod().noted({"nvidia.com/container.x.gpu-memory.request": "1Gi"}),
        "has no such container",
    ),
    "a word that nobody knows": (
        pod().noted({"nvidia.com/container.main.gpu-memory": "1Gi"}),
        "is none of",
    ),
    "multiprocessors": (
        pod().noted(
            {
                "nvidia.com/container.main.gpu-memory.request": "1Gi",
                "nvidia.com/container.main.gpu-compute.mode": "sm-sharing",
            }
        ),
        "time-slicing",
    ),
    "a limit below": (
        pod().noted(
            {
                "nvidia.com/container.main.gpu-memory.request": "2Gi",
                "nvidia.com/container.main.gpu-memory.limit": "1Gi",
            }
        ),
        "is below",
    ),
    "no number": (pod().labelled({"sharedgpu/gpu_request": "nan"}), "is not a share"),
    "one card and a half": (
        pod().labelled({"sharedgpu/gpu_request": "1.5"}),
        "sharedgpu/gpu_request: '1.5'",
    ),
}


@pytest.mark.parametrize(("built", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused(built: PodDocument, words: str) -> None:
    found = decision_on(built)
    assert not found.is_allowed
    assert words in found.message


@pytest.mark.parametrize("asked", [each for each, _ in UNDERSTOOD.values()], ids=UNDERSTOOD)
def test_telling_twice_is_telling_once(asked: dict[str, str]) -> None:
    built = asking(asked)
    built.body = stored(built)
    assert decision_on(built).ops == ()


def test_author_reads_how_the_request_was_understood() -> None:
    (warning,) = decision_on(asking({"nvidia.com/gpumem": "3000"}).owned_by("Job")).warnings
    assert warning == "Ballast reads this pod's GPU request as gpu-memory: 3000"


def test_pod_of_no_project_is_left_to_the_other_scheduler() -> None:
    built = pod(namespace="elsewhere").asking("nvidia.com/gpumem", "3000")
    found = decision_on(built)
    assert (found.is_allowed, found.ops, found.warnings) == (True, (), ())


def test_cards_alone_are_everybodys_word() -> None:
    assert not is_foreign(names.NVIDIA_GPU)
    every: list[Any] = [word for dialect in DIALECTS for word in dialect.words]
    assert len(every) == len(set(every))
