"""Holding and resuming of workloads."""

from typing import Any

from extender.api import names
from extender.cli.work import holds


def pod(name: str, *, owner: str = "", group: str = "", gate: bool = True, hold: str = "") -> Any:
    meta: dict[str, Any] = {"name": name, "namespace": "n", "labels": {}, "annotations": {}}
    if owner:
        meta["ownerReferences"] = [{"name": owner, "controller": True}]
    if group:
        meta["labels"][names.LABEL_POD_GROUP] = group
    if hold:
        meta["annotations"][names.ANNOTATION_HOLD] = hold
    return {"metadata": meta, "spec": {"schedulingGates": [{"name": names.GATE}] if gate else []}}


def group(name: str, hold: str = "") -> Any:
    notes = {names.ANNOTATION_HOLD: hold} if hold else {}
    return {"metadata": {"name": name, "namespace": "n", "annotations": notes}}


class TestHolds:
    def test_pods_of_a_job_that_wait_are_held_and_what_runs_is_not(self) -> None:
        pods = [pod("j-1", owner="j"), pod("j-2", owner="j", gate=False), pod("k-1", owner="k")]
        assert holds.targets_of(pods, {}, "j", is_held=True) == [("pod", "j-1")]

    def test_group_is_held_in_place_of_its_pods(self) -> None:
        pods = [pod("j-1", owner="j", group="g"), pod("j-2", owner="j", group="g")]
        found = holds.targets_of(pods, {"g": group("g")}, "j", is_held=True)
        assert found == [("gpupodgroup.ballast.dev", "g")]

    def test_pods_of_a_group_that_has_no_object_are_held_themselves(self) -> None:
        pods = [pod("j-1", owner="j", group="g")]
        assert holds.targets_of(pods, {}, "g", is_held=True) == [("pod", "j-1")]

    def test_group_without_pods_is_held_by_its_name(self) -> None:
        of_group = [("gpupodgroup.ballast.dev", "g")]
        assert holds.targets_of([], {"g": group("g")}, "g", is_held=True) == of_group
        assert holds.targets_of([], {"g": group("g", "true")}, "g", is_held=False) == of_group
        assert holds.targets_of([], {"g": group("g")}, "g", is_held=False) == []

    def test_pod_that_is_being_deleted_waits_no_more(self) -> None:
        leaving = pod("j-1", owner="j")
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert holds.targets_of([leaving], {}, "j", is_held=True) == []

    def test_group_whose_pods_of_that_name_all_run_is_left_alone(self) -> None:
        pods = [pod("j-1", owner="j", group="g", gate=False)]
        assert holds.targets_of(pods, {"g": group("g")}, "j", is_held=True) == []

    def test_resume_takes_what_is_held_only(self) -> None:
        pods = [
            pod("j-1", owner="j", hold="true"),
            pod("j-2", owner="j"),
            pod("j-3", owner="j", group="g", hold="true"),
        ]
        found = holds.targets_of(pods, {"g": group("g", "true")}, "j", is_held=False)
        assert found == [
            ("pod", "j-1"),
            ("gpupodgroup.ballast.dev", "g"),
            ("pod", "j-3"),
        ]
        assert holds.targets_of(pods, {"g": group("g")}, "other", is_held=False) == []
