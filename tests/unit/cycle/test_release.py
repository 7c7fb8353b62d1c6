"""The patches that release pods: what they set, and what they leave unchanged."""

from extender.api.kinds import CardShare, Row
from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement
from extender.cycle.pods.release import (
    forget_plan_patch,
    release_patch,
    revoke_patch,
)
from extender.state.model import Constraints, PodView
from extender.state.refusals import Refusals, read_refusals

ROW = Row(
    uid="u", namespace="ns", name="p", cards=[CardShare(0, 500, 10)], state="reserved",
    epoch=7, reserved_at=99,
)  # fmt: skip


def pod(**facts: object) -> PodView:
    return PodView(uid="u", namespace="ns", name="p", resource_version="41", **facts)  # type: ignore[arg-type]


def terms_of(view: PodView, *nodes: str) -> list[dict[str, object]]:
    affinity = release_patch(view, 7, "n1", nodes)["spec"]["affinity"]["nodeAffinity"]
    terms: list[dict[str, object]] = affinity["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return terms


def test_release_names_the_plan_and_carries_the_version_it_was_decided_on() -> None:
    metadata = release_patch(pod(), 7, "n1", ())["metadata"]
    assert metadata["resourceVersion"] == "41"
    assert metadata["annotations"]["ballast.dev/plan"] == "7 n1"


def test_release_removes_our_gate_and_keeps_those_of_others() -> None:
    for view in (pod(), pod(other_gates=("x.dev/hold",))):
        gates = release_patch(view, 7, "n1", ())["spec"]["schedulingGates"]
        assert gates == [{"$patch": "delete", "name": "ballast.dev/admission"}]


def named(*nodes: str) -> list[dict[str, object]]:
    return [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]


def test_each_node_that_the_pod_is_released_for_is_a_term_of_its_affinity() -> None:
    first, second = named("n1", "n2")
    assert terms_of(pod(), "n1", "n2") == [{"matchFields": [first]}, {"matchFields": [second]}]


def test_affinity_of_a_pod_that_may_stay_free_is_left_alone() -> None:
    assert "affinity" not in release_patch(pod(), 7, "n1", ())["spec"]


def test_pod_that_was_released_before_gets_its_plan_and_nothing_else() -> None:
    patch = release_patch(pod(is_gated=False), 7, "n1", ("n1", "n2"))
    assert patch.keys() == {"metadata"}


def test_every_alternative_that_a_pod_requires_is_narrowed_and_kept() -> None:
    zone = Requirement("zone", "In", ["a"])
    gpu = Requirement("gpu", "Exists")
    wants = NodeSelector([NodeSelectorTerm([zone]), NodeSelectorTerm([gpu])])
    (pin,) = named("n1")
    assert terms_of(pod(constraints=Constraints(affinity=wants)), "n1") == [
        {
            "matchFields": [pin],
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
        },
        {"matchFields": [pin], "matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
    ]


def test_revoking_takes_the_plan_and_names_the_row_that_may_not_be_bound() -> None:
    annotations = revoke_patch(pod(), "n1", ROW)["metadata"]["annotations"]
    assert annotations == {"ballast.dev/plan": None, "ballast.dev/revoked": "n1 7 99"}


def test_revoking_an_older_row_leaves_the_plan_of_the_newer_one() -> None:
    annotations = revoke_patch(pod(), "n1", ROW, keeps_plan=True)["metadata"]["annotations"]
    assert annotations == {"ballast.dev/revoked": "n1 7 99"}


def test_revoking_writes_where_the_pod_was_refused() -> None:
    refusals = Refusals().after("n1", now_s=100, wait_s=30)
    annotations = revoke_patch(pod(), "n1", ROW, refusals=refusals)["metadata"]["annotations"]
    assert read_refusals(annotations["ballast.dev/refused"]) == refusals


def test_pod_whose_plan_lost_its_row_is_marked_as_planned_before() -> None:
    annotations = forget_plan_patch(pod())["metadata"]["annotations"]
    assert annotations["ballast.dev/plan"] is None
    assert annotations["ballast.dev/revoked"]


def test_every_patch_carries_the_resource_version() -> None:
    for patch in (
        release_patch(pod(), 7, "n1", ()),
        revoke_patch(pod(), "n1", ROW),
        forget_plan_patch(pod()),
    ):
        assert patch["metadata"]["resourceVersion"] == "41"
