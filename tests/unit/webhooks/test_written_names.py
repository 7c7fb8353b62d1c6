"""Messages name a label, annotation or resource as the author of the pod wrote it."""

import pytest

from extender.api import names
from tests.support.admission import PodDocument, decision_on, index_of, pod, project, refusal
from webhooks.review import Decision

HALF = {"gpu-fraction": "0.5"}
GROUP = "scheduling.x-k8s.io/pod-group"
KAI_LIMIT = "nvidia.com/container.main.gpu-memory.limit"


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (pod().noted({"ballast.dev/gpu-fraction": "50%"}), "ballast.dev/gpu-fraction: '50%'"),
        (pod().noted({"gpu-fraction": "50%"}), "/train-1: gpu-fraction: '50%'"),
        (pod().noted({"ballast.dev/gpu-memory": "10Gi"}), "ballast.dev/gpu-memory: '10Gi'"),
        (
            pod().noted({"ballast.dev/gpu-fraction": "0.5", "gpu-memory": "1024"}),
            "requests GPUs with ballast.dev/gpu-fraction and gpu-memory;",
        ),
        (
            pod().noted(HALF | {"ballast.dev/gpu-compute-request": "600"}),
            "ballast.dev/gpu-compute-request is 0.6, above the 0.5 of each card",
        ),
        (
            pod().noted(HALF | {"gpu-compute-request": "0.4", "gpu-compute-limit": "0.25"}),
            "gpu-compute-request is 0.4, above gpu-compute-limit, 0.25; give at most that",
        ),
        (
            pod().noted({"gpu-memory": "2048", "ballast.dev/gpu-memory-limit": "1024"}),
            "ballast.dev/gpu-memory-limit is 1024 MiB, below gpu-memory, 2048; raise it",
        ),
        (
            pod().noted({"gpu-memory": "2048", "gpu-memory-limit": "4Gi"}),
            "/train-1: gpu-memory-limit: '4Gi'",
        ),
        (
            pod().noted(HALF).labelled({"kai.scheduler/preemptibility": "never"}),
            "kai.scheduler/preemptibility: 'never' is not one of",
        ),
        (
            pod()
            .noted(HALF | {names.ANNOTATION_FLOOR: "2"})
            .labelled({"kai.scheduler/preemptibility": "non-preemptible"}),
            "kai.scheduler/preemptibility: non-preemptible are",
        ),
        (pod().noted(HALF).labelled({GROUP: "Train_7"}), f"{GROUP}: 'Train_7' is not a name"),
        (
            pod().noted(HALF).labelled({"kai.scheduler/subgroup-name": "A_b"}),
            "kai.scheduler/subgroup-name: 'A_b' is not a name",
        ),
        (
            pod().noted(HALF).labelled({"runai/queue": "speech"}),
            "label runai/queue: namespace team-a may not use project 'speech'",
        ),
        (
            pod().asking("nvidia.com/gpumem", "1").noted({"ballast.dev/gpu-memory": "2"}),
            "ballast.dev/gpu-memory: '2' contradicts nvidia.com/gpumem, which means '1'",
        ),
        (
            pod().asking("nvidia.com/gpumem", "1").asking("volcano.sh/vgpu-memory", "1"),
            "requests nvidia.com/gpumem and volcano.sh/vgpu-memory, words of several schedulers",
        ),
        (pod().labelled({"sharedgpu/gpu_request": "0.5555"}), "sharedgpu/gpu_request: '0.5555'"),
        (pod().noted({KAI_LIMIT: "8 GB"}), f"{KAI_LIMIT}: '8 GB' is not a Kubernetes quantity"),
        (pod().asking("nvidia.com/gpu", "-1"), "nvidia.com/gpu: '-1' is not"),
        (pod().noted(HALF).asking("cpu", "-1"), "cpu: '-1' is not"),
        (pod().noted(HALF).asking("memory", "-1Gi"), "memory: '-1Gi' is not"),
    ],
)
def test_a_refusal_names_the_key_as_it_was_written(built: PodDocument, said: str) -> None:
    index = index_of(project("vision", "team-a"), project("speech", "team-b"))
    assert said in refusal(built, index)


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        (
            {"ballast.dev/gpu-memory": "16"},
            'ballast.dev/gpu-memory: 16 means 16 MiB: for 16 GiB write "16384"',
        ),
        (
            HALF | {"ballast.dev/gpu-memory-limit": "2048"},
            "ballast.dev/gpu-memory-limit has no effect without gpu-memory, the request in MiB",
        ),
    ],
)
def test_a_warning_names_the_key_as_it_was_written(notes: dict[str, str], said: str) -> None:
    found: Decision = decision_on(pod().noted(notes))
    assert said in found.warnings
