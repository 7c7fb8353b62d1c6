"""Any pod: answered, never with an exception; and what was made of it is not made again."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api import aliases, demand, names
from extender.api.events import Upserted
from extender.api.kinds import GpuNodePool, GpuNodePoolSpec, KindSelector, TimeSlicing
from extender.api.objects import ObjectMeta, PriorityClass
from tests.support.admission import PodDocument, decision_on, pod, project, review_body, stored
from tests.support.admission import index_of as index_of_projects
from tests.support.hostile import hostile_counts, hostile_fractions
from webhooks.mutate import decide
from webhooks.review import ReviewError, answer, read
from webhooks.vocabulary import DIALECTS

INDEX = index_of_projects(
    project(
        "vision",
        "team-a",
        node_affinity=[KindSelector(workload_kind="training", match_labels={"gpu": "a100"})],
    ),
    project("speech", "team-b", allowed_priority_classes=["ballast-training"]),
)
for strict_pool in ("default", "vision"):
    time_slicing = TimeSlicing(mode="Strict")
    INDEX.deliver(
        Upserted(
            GpuNodePool(
                metadata=ObjectMeta(name=strict_pool, uid=strict_pool),
                spec=GpuNodePoolSpec(time_slicing=time_slicing),
            )
        )
    )
for name, value in names.CLASS_VALUES.items():
    INDEX.deliver(Upserted(PriorityClass(metadata=ObjectMeta(name=name, uid=name), value=value)))

texts = st.sampled_from(
    ["0.5", "0.25", "8192", "2", "1", "vision", "speech", "gang-1", "training", "preemptible", "4"]
) | st.sampled_from([*hostile_fractions()[:80], *hostile_counts()[:40]])
annotation_keys = st.sampled_from(
    [
        *demand.GPU_ANNOTATIONS,
        demand.COMPUTE_REQUEST,
        demand.COMPUTE_LIMIT,
        names.ANNOTATION_COMPUTE_REQUEST,
        names.ANNOTATION_MIN_MEMBER,
        names.ANNOTATION_NODE_POOLS,
        names.ANNOTATION_CARDS,
        "nvidia.com/container.main.gpu-memory.request",
        "gpu-memory-limit",
        "other",
    ]
)
label_keys = st.sampled_from(
    [
        *aliases.PROJECT_LABELS,
        *aliases.GROUP_LABELS,
        *aliases.PREEMPTIBILITY_LABELS,
        names.LABEL_WORKLOAD_KIND,
        "sharedgpu/gpu_request",
        "app",
    ]
)
FOREIGN = sorted({word for dialect in DIALECTS for word in dialect.words} | {"nvidia.com/gpu-10gb"})
amounts = st.sampled_from(["0", "1", "2", "500", "1000", "2000", "500m", "-1"])
resources = st.dictionaries(
    st.sampled_from([names.NVIDIA_GPU, names.GPU_MILLI, "cpu", "memory", *FOREIGN]),
    amounts,
    max_size=2,
)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["main", "c1"])},
        optional={
            "resources": st.fixed_dictionaries(
                {}, optional={"requests": resources, "limits": resources | st.none()}
            ),
            "restartPolicy": st.just("Always"),
        },
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def pods(draw: st.DrawFn) -> PodDocument:
    """A pod that asks for cards in a good or bad way, in a namespace with a project or without."""
    built = pod(namespace=draw(st.sampled_from(["team-a", "team-b", "elsewhere"])))
    notes = draw(
        st.dictionaries(annotation_keys, texts, max_size=3)
        | st.just({"gpu-fraction": "0.5"})
        | st.just({"gpu-memory": "8192", "gpu-fraction-num-devices": "2"})
    )
    if notes:
        built.noted(notes)
    if labels := draw(st.dictionaries(label_keys, texts, max_size=2)):
        built.labelled(labels)
    if draw(st.booleans()):
        built.with_spec(containers=draw(containers), initContainers=draw(containers))
    if draw(st.booleans()):
        built.with_spec(priorityClassName=draw(st.sampled_from(["ballast-build", "train", "mine"])))
    if draw(st.booleans()):
        built.with_spec(schedulerName=names.SCHEDULER_NAME)
    if draw(st.booleans()):
        built.owned_by(draw(st.sampled_from(["DaemonSet", "Job"])))
    return built


@given(built=pods())
@settings(max_examples=300)
def test_applying_twice_is_applying_once(built: PodDocument) -> None:
    if not decision_on(built, INDEX).is_allowed:
        return
    again = copy.deepcopy(built)
    again.body = stored(built, INDEX)
    decision = decision_on(again, INDEX)
    assert decision.is_allowed, decision.message
    assert decision.ops == ()


@given(built=pods())
@settings(max_examples=300)
def test_refusal_is_a_sentence_and_changes_nothing(built: PodDocument) -> None:
    decision = decision_on(built, INDEX)
    if decision.is_allowed:
        return
    assert decision.ops == ()
    assert len(decision.message) > 20
    assert decision.message.split(":")[0] in ("InvalidRequest", "UnknownProject")


@given(built=pods())
@settings(max_examples=300)
def test_gated_pod_asks_for_milli_of_our_scheduler(built: PodDocument) -> None:
    if not decision_on(built, INDEX).is_allowed:
        return
    spec = stored(built, INDEX)["spec"]
    if {"name": names.GATE} not in spec.get("schedulingGates", []):
        return
    asked = json.dumps([*spec["containers"], *spec.get("initContainers", [])])
    assert spec["schedulerName"] == names.SCHEDULER_NAME
    assert names.GPU_MILLI in asked


@given(
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    ).map(lambda tree: json.dumps(tree).encode())
)
def test_any_body_is_a_review_or_said_to_be_none(body: bytes) -> None:
    try:
        request = read(body)
    except ReviewError:
        return
    answer(request.uid, decide(request, INDEX))


@given(
    tree=st.dictionaries(
        st.sampled_from(["metadata", "spec", "status"]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.dictionaries(
                    st.sampled_from(
                        ["annotations", "labels", "containers", "gpu-fraction", "name"]
                    ),
                    inner,
                )
                | st.lists(inner, max_size=3)
            ),
        ),
    )
)
def test_any_object_is_answered(tree: dict[str, Any]) -> None:
    body = review_body({"metadata": {}, **{k: v for k, v in tree.items() if k != "metadata"}})
    document = json.loads(body)
    document["request"]["object"] = tree
    request = read(json.dumps(document).encode())
    assert answer(request.uid, decide(request, INDEX))
