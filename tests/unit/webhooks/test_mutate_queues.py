"""Changes and refusals of a pod because of its project, department and node pools."""

import json
import re
from typing import Any

import msgspec
import pytest

from extender.api import names
from extender.api.events import Upserted
from extender.api.kinds import GpuDepartment, GpuNodePool, GpuProject
from extender.api.objects import ObjectMeta, PriorityClass
from tests.support.admission import (
    PodDocument,
    decision_on,
    index_of,
    pod,
    review_body,
    stored,
)
from webhooks.change import VISIBLE_DEVICES
from webhooks.mutate import decide
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, read

Body = dict[str, Any]
HALF = {"gpu-fraction": "0.5"}
HIDDEN = {"name": VISIBLE_DEVICES, "value": "void"}


def index(project: Body, department: Body | None = None, **pools: Body) -> ProjectIndex:
    """`vision`, of namespace `team-a` and department `research`, and node pools by their spec."""
    found = index_of()
    spec = {"department": "research", "namespaces": ["team-a"]} | project
    for kind, name, body in (
        (GpuProject, "vision", spec),
        (GpuDepartment, "research", department or {}),
        *((GpuNodePool, name, body) for name, body in pools.items()),
    ):
        document = {"metadata": {"name": name, "uid": name}, "spec": body}
        found.deliver(Upserted(msgspec.convert(document, kind)))
    return found


def limited(name: str = "default", **gpu: Any) -> Body:
    return {"nodePools": [{"name": name, "gpu": gpu}]}


def refusal(built: PodDocument, known: ProjectIndex) -> str:
    found = decision_on(built, known)
    assert not found.is_allowed
    return found.message


TYPED = {"nodeAffinity": [{"workloadKind": "training", "matchLabels": {"gpu": "a100"}}]}


def test_node_types_of_the_project_are_selected() -> None:
    after = stored(pod().noted(HALF).with_spec(nodeSelector={"disk": "ssd"}), index(TYPED))
    assert after["spec"]["nodeSelector"] == {"disk": "ssd", "gpu": "a100"}


def test_node_types_are_for_their_kind_of_work_only() -> None:
    built = pod().noted(HALF).labelled({names.LABEL_WORKLOAD_KIND: "inference"})
    assert "nodeSelector" not in stored(built, index(TYPED))["spec"]


def test_nodes_of_another_type_are_refused_with_the_right_one() -> None:
    built = pod().noted(HALF).with_spec(nodeSelector={"gpu": "h100"})
    assert "give the one that is, such as gpu: a100" in refusal(built, index(TYPED))


@pytest.mark.parametrize(
    ("project", "department", "built", "words"),
    [
        (limited(limit=4), {}, pod().asking("nvidia.com/gpu", "8"),
         "asks for 8 GPUs, but project vision may have at most 4 in node pool default; ask for at"
         " most that, such as nvidia.com/gpu: 4"),
        (limited(limit="0.25"), {}, pod().noted(HALF), "such as gpu-fraction: \"0.25\""),
        (limited(limit=4), limited(limit=2), pod().asking("nvidia.com/gpu", "3"),
         "department research may have at most 2"),
        (limited(limit=1), {}, pod().asking("nvidia.com/mig-2g.10gb", "1"), "asks for 2 GPUs"),
        ({"nodePools": [{"name": "default", "memory": {"limit": "8Gi"}}]}, {},
         pod().noted(HALF).asking("memory", "9Gi"), "asks for memory: 9216Mi"),
    ],
)  # fmt: skip
def test_pod_that_could_never_run_is_refused(
    project: Body, department: Body, built: PodDocument, words: str
) -> None:
    said = refusal(built, index(project, department))
    assert said.startswith("OverLimit: team-a/train-1: ")
    assert words in said
    assert "such as" in said


@pytest.mark.parametrize(
    ("project", "built"),
    [
        (limited(limit=8), pod().asking("nvidia.com/gpu", "8")),
        (limited(quota=1), pod().asking("nvidia.com/gpu", "8")),
        (limited("a100", limit=1), pod().asking("nvidia.com/gpu", "2").noted(
            {names.ANNOTATION_NODE_POOLS: "a100,default"})),
        ({"nodePools": [{"name": "a", "gpu": {"limit": 1}}, {"name": "b", "gpu": {"limit": 9}}]},
         pod().asking("nvidia.com/gpu", "2")),
    ],
)  # fmt: skip
def test_pod_that_may_run_somewhere_is_let_in(project: Body, built: PodDocument) -> None:
    assert decision_on(built, index(project)).is_allowed


STRICT = {"timeSlicing": {"mode": "Strict"}}


@pytest.mark.parametrize(
    ("notes", "pools", "expected"),
    [
        (HALF, {"default": STRICT}, ("500", "500")),
        (HALF, {"default": {"timeSlicing": {"mode": "Fair"}}}, ("500", "1000")),
        (HALF, {"other": STRICT}, ("500", "1000")),
        (HALF | {names.ANNOTATION_NODE_POOLS: "other"}, {"other": STRICT}, ("500", "500")),
        (HALF | {"gpu-compute-limit": "0.75"}, {"default": STRICT}, ("500", "750")),
        ({"gpu-memory": "8192"}, {"default": STRICT}, ("0", "1000")),
    ],
)
def test_compute_follows_the_mode_of_the_pool(
    notes: Body, pools: Body, expected: tuple[str, str]
) -> None:
    told = stored(pod().noted(notes), index({}, **pools))["metadata"]["annotations"]
    found = told[names.ANNOTATION_COMPUTE_REQUEST], told[names.ANNOTATION_COMPUTE_LIMIT]
    assert found == expected


@pytest.mark.parametrize(
    ("pools", "n_warnings"),
    [({}, 1), ({"default": {}}, 1), ({"default": {"timeSlicing": {"mode": "Fair"}}}, 0)],
)
def test_share_of_time_in_a_pool_that_does_not_divide_it_is_warned_of(
    pools: Body, n_warnings: int
) -> None:
    built = pod().noted(HALF | {"gpu-compute-limit": "0.75"}).owned_by("Job")
    warned = decision_on(built, index({}, **pools)).warnings
    assert len(warned) == n_warnings
    assert all("gpu-compute-limit has no effect in node pool default" in each for each in warned)


def test_node_pool_without_any_gpu_for_the_project_is_refused_with_the_way_out() -> None:
    said = refusal(pod().noted(HALF), index(limited(limit=0)))
    assert said.endswith("; use another node pool (annotation ballast.dev/node-pools)")


def test_memory_limit_without_a_unit_is_shown_in_bytes() -> None:
    figures = {"nodePools": [{"name": "default", "memory": {"limit": 128}}]}
    built = pod().asking("nvidia.com/gpu", "1").asking("memory", "32Gi")
    assert "may have at most 128 bytes in node pool" in refusal(built, index(figures))


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_container_beside_a_share_is_shown_no_card(field: str) -> None:
    own = {"name": "X", "value": "y"}
    extra = {"name": "more", "image": "i", "env": [own]}
    built = pod().noted(HALF).with_spec(**{field: [extra]})
    after = stored(built)["spec"]
    assert after[field][0]["env"] == [own, HIDDEN]
    assert after["containers"][0]["env"][-1] == HIDDEN


def test_whole_cards_are_shown_by_their_device_plugin() -> None:
    after = stored(pod().asking("nvidia.com/gpu", "1"))["spec"]["containers"][0]
    assert "env" not in after


def test_what_an_author_says_of_devices_is_left_to_the_policy() -> None:
    loud = {"name": VISIBLE_DEVICES, "value": "all"}
    built = pod().noted(HALF).with_spec(containers=[{"name": "main", "env": [loud]}])
    assert stored(built)["spec"]["containers"][0]["env"] == [loud]


def added(notes: Body, *known: str) -> Decision:
    """The decision on an ephemeral container `new` beside those that are `known`."""
    document = pod().noted(notes).body
    guests = [{"name": name, "image": "i"} for name in known]
    review = json.loads(review_body(document, operation="UPDATE"))
    asked = review["request"]
    asked["subResource"] = "ephemeralcontainers"
    asked["oldObject"] = document | {"spec": document["spec"] | {"ephemeralContainers": guests}}
    more = [*guests, {"name": "new", "image": "i"}]
    asked["object"] = document | {"spec": document["spec"] | {"ephemeralContainers": more}}
    return decide(read(json.dumps(review).encode()), index({}))


def test_new_ephemeral_container_is_shown_no_card() -> None:
    (operation,) = added(HALF, "old").ops
    assert operation["path"] == "/spec/ephemeralContainers"
    assert [each.get("env") for each in operation["value"]] == [None, [HIDDEN]]


def test_ephemeral_container_of_other_pods_is_left_alone() -> None:
    assert added({}) == Decision(is_allowed=True)


@pytest.mark.parametrize(
    ("user", "is_gated"),
    [
        ("alice", True),
        ("system:serviceaccount:team-a:default", True),
        ("system:serviceaccount:kube-system:daemon-set-controller", False),
        ("system:kube-controller-manager", False),
    ],
)
def test_only_the_daemon_set_controller_makes_pods_of_daemon_sets(
    user: str, is_gated: bool
) -> None:
    review = json.loads(review_body(pod().noted(HALF).owned_by("DaemonSet").body))
    review["request"]["userInfo"] = {"username": user}
    ops = decide(read(json.dumps(review).encode()), index({})).ops
    assert any("schedulingGates" in each["path"] for each in ops) is is_gated


@pytest.mark.parametrize("key", ["gpu-fraction-limit", "gpu-memory-limit", "mps"])
def test_words_that_we_do_not_follow_are_warned_of(key: str) -> None:
    built = pod().noted(HALF | {key: "1"}).owned_by("Job")
    (warning,) = decision_on(built, index({})).warnings
    assert warning.startswith(f"{key} has no effect")


EIGHT = {"gpu-memory": "8192"}


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ({"gpu-memory-limit": "4096"}, "gpu-memory-limit is 4096 MiB, below gpu-memory, 8192"),
        ({"gpu-memory-limit": "16Gi"}, 'gpu-memory-limit: .*for 16 GiB write "16384"'),
        ({"gpu-memory-limit": "9000", "ballast.dev/gpu-memory-limit": "9001"}, "differ"),
    ],
)
def test_a_memory_limit_that_is_no_limit_is_refused(notes: Body, why: str) -> None:
    assert re.search(why, refusal(pod().noted(EIGHT | notes), index({})))


LENDING: Body = {"memoryLending": "Enabled"}


@pytest.mark.parametrize("key", ["gpu-memory-limit", "ballast.dev/gpu-memory-limit"])
@pytest.mark.parametrize(
    ("pools", "silent"),
    [({}, "default"), ({"default": LENDING}, ""), ({"default": LENDING, "old": {}}, "old")],
)
def test_a_memory_limit_is_warned_of_where_a_pool_lends_no_memory(
    key: str, pools: dict[str, Body], silent: str
) -> None:
    built = pod().noted(EIGHT | {key: "16384"}).owned_by("Job")
    warnings = decision_on(built, index({}, **pools)).warnings
    assert [f"node pool {silent}, which lends no memory" in each for each in warnings] == (
        [True] if silent else []
    )


def test_number_too_large_for_any_field_is_refused() -> None:
    body = review_body(pod().noted(HALF).with_spec(other="?").body)
    huge = body.replace(b'"?"', b"9" * 6000)
    found = decide(read(huge), index({}))
    assert found.is_allowed or "object is not a Pod" in found.message


def test_numbers_of_a_class_that_is_known_are_written_with_its_name() -> None:
    known = index({})
    meta = ObjectMeta(name="ballast-training", uid="t")
    known.deliver(Upserted(PriorityClass(metadata=meta, value=50, preemption_policy="Never")))
    spec = stored(pod().noted(HALF), known)["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("ballast-training", 50)
    assert spec["preemptionPolicy"] == "Never"


def sized(gpus: int, mib: int, **spec: Any) -> Body:
    return {"spec": spec, "status": {"largestNodeGpus": gpus, "largestCardMiB": mib}}


GROWS = {"maxNodes": 4, "node": {"gpus": 8, "gpuMemoryMiB": 81920, "cpu": 8, "memoryGiB": 64}}


@pytest.mark.parametrize(
    ("pools", "built", "words"),
    [
        ({"default": sized(2, 16384)}, pod().asking("nvidia.com/gpu", "4"),
         "it asks for 4 GPUs of one node, and no node of node pool default has more than 2"),
        ({"default": sized(2, 16384)}, pod().noted({"gpu-memory": "20000"}),
         "it asks for 20000 MiB of a card, and no card of node pool default has more than 16384"),
        ({"default": sized(2, 16384)}, pod().asking("nvidia.com/gpu", "2"), ""),
        ({"default": sized(2, 16384), "large": sized(8, 1)}, pod().asking("nvidia.com/gpu", "4"),
         ""),
        ({"default": sized(2, 16384), "new": {}}, pod().asking("nvidia.com/gpu", "4"), ""),
        ({"default": sized(2, 16384, elastic=GROWS)}, pod().asking("nvidia.com/gpu", "8"), ""),
        ({"default": sized(2, 16384, elastic=GROWS)}, pod().noted({"gpu-memory": "90000"}),
         "has more than 81920 MiB"),
    ],
)  # fmt: skip
def test_author_of_a_pod_that_no_node_holds_is_warned(
    pools: dict[str, Body], built: PodDocument, words: str
) -> None:
    known = index({})
    for name, body in pools.items():
        document = {"metadata": {"name": name, "uid": name}} | body
        known.deliver(Upserted(msgspec.convert(document, GpuNodePool)))
    found = decision_on(built, known)
    assert found.is_allowed
    told = [each for each in found.warnings if "will not start" in each]
    assert (len(told), words in "".join(told)) == (bool(words), True)
