"""A picture as a scenario file: both give the same decisions."""

from collections import Counter
from itertools import chain
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from extender.api.names import ANNOTATION_HOLD, LABEL_GPU_MODEL
from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement
from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.scenario.faults import faults_of
from extender.scenario.model.case import Case
from extender.scenario.snapshot import settings_now, take_snapshot
from extender.scenario.world import World
from extender.state.model import GPU, Constraints, PodTerm
from extender.view.file_names import Names
from extender.view.picture import Picture
from extender.view.snapshot_file import as_file
from tests.scenarios.listed import OWN_FILES, cases_in
from tests.support.snapshots import Cluster
from tests.support.thorough import every

N_PARTS = 12


def read(told: dict[str, Any]) -> Case:
    """The file as `ballast scenario` reads it, after a way through YAML."""
    text = yaml.dump(told, Dumper=yaml.CSafeDumper)
    case = msgspec.convert(yaml.load(text, yaml.CSafeLoader), Case)
    assert list(faults_of(case)) == []
    return case


def picture_of(case: Case) -> Picture:
    world = World.of(case)
    return Picture(take_snapshot(world), settings_now(world))


def fates(plan: Plan) -> dict[str, Any]:
    """What the plan does, without the places."""
    return {
        "starts": {each.workload.name: len(each.placements) for each in plan.admissions},
        "stops": Counter(each.workload for each in plan.evictions),
        "moves": len(plan.moves),
        "waits": {key.partition("/")[2]: refused.reason for key, refused in plan.waits.items()},
    }


def shares(plan: Plan) -> dict[tuple[str, str], tuple[int, int, int]]:
    return {
        key: (share.quota[GPU], share.fair_share[GPU], share.allocated[GPU])
        for key, share in plan.shares.items()
    }


def busy() -> Cluster:
    """Two full nodes, work that waits, and work that borrows."""
    made = Cluster()
    made.node("n0", gpus=4)
    made.node("n1", gpus=4)
    made.project("a", quota=6)
    made.project("b", quota=2)
    made.job("a-run", "a", gpus=1, pods=4, on="n0", min=1)
    made.job("b-run", "b", gpus=1, pods=4, on="n1", min=1)
    made.job("wait", "a", gpus=1, pods=2)
    made.job("late", "b", gpus=2)
    return made


def test_file_is_decided_as_the_picture_is() -> None:
    picture = Picture(busy().snapshot())
    plan = decide(picture_of(read(as_file(picture, Names()))).snapshot)
    assert fates(plan) == fates(picture.plan)
    known = {key: each for key, each in shares(picture.plan).items() if key in shares(plan)}
    assert shares(plan) == known
    assert fates(plan)["stops"], "this cluster is to have an eviction"


def test_names_are_hashed_alike_in_one_file_and_otherwise_in_the_next() -> None:
    picture = Picture(busy().snapshot())
    one, two = (as_file(picture, Names(is_anonymous=True)) for _ in range(2))
    text = yaml.safe_dump(one)
    for name in ("a-run", "b-run", "wait", "n0", "n1"):
        assert f"{name}\n" not in text
    assert {each["name"] for each in one["nodes"]}.isdisjoint(each["name"] for each in two["nodes"])
    plan = decide(picture_of(read(one)).snapshot)
    before, after = fates(picture.plan), fates(plan)
    assert len(after["starts"]) == len(before["starts"])
    assert sorted(after["waits"].values()) == sorted(before["waits"].values())


def test_held_pods_are_left_out_and_reported() -> None:
    cluster = busy()
    late = cluster.workloads["ns/late"]
    pods = tuple(replace(pod, other_gates=(ANNOTATION_HOLD,)) for pod in late.pods)
    cluster.workloads["ns/late"] = replace(late, pods=pods)
    told = as_file(Picture(cluster.snapshot()), Names())
    assert "late" not in [job["name"] for job in told["jobs"]]
    assert "1 x pods that a hold" in told["about"]


def terms(*keys: str) -> NodeSelector:
    """Node affinity with a term for each key."""
    return NodeSelector([NodeSelectorTerm([Requirement(key, "Exists")]) for key in keys])


BESIDE = PodTerm("kubernetes.io/hostname", (("app", "db"),))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Constraints(node_selector=(("disk", "ssd"),)), ""),
        (Constraints(affinity=terms("zone")), ""),
        (Constraints(affinity=terms("zone", "rack")), "node affinities with several terms"),
        (Constraints(gpu_models=("A100",)), "GPU models, pod affinity, volumes"),
        (Constraints(pod_affinity=(BESIDE,)), "GPU models, pod affinity, volumes"),
        (Constraints(pod_anti_affinity=(BESIDE,)), "GPU models, pod affinity, volumes"),
        (Constraints(volumes=(terms("zone"),)), "GPU models, pod affinity, volumes"),
    ],
)
def test_what_a_file_cannot_say_of_a_pod_is_counted(asked: Constraints, said: str) -> None:
    cluster = busy()
    late = cluster.workloads["ns/late"]
    pods = tuple(replace(pod, constraints=asked) for pod in late.pods)
    cluster.workloads["ns/late"] = replace(late, pods=pods)
    told = as_file(Picture(cluster.snapshot()), Names())
    assert "late" in [job["name"] for job in told["jobs"]]
    assert (f"1 x {said}" in told["about"]) if said else ("about" not in told)


def test_work_whose_request_is_not_understood_is_left_out_and_counted() -> None:
    cluster = busy()
    problem = Refused(Reason.INVALID_REQUEST, "ns/late-0: gpu-fraction: 2")
    cluster.workloads["ns/late"] = replace(cluster.workloads["ns/late"], problem=problem)
    told = as_file(Picture(cluster.snapshot()), Names())
    assert "late" not in [job["name"] for job in told["jobs"]]
    assert "1 x workloads that cannot start as they are" in told["about"]


def test_card_that_no_workload_holds_and_that_is_not_free_stays_taken() -> None:
    cluster = busy()
    del cluster.workloads["ns/b-run"]
    told = as_file(Picture(cluster.snapshot()), Names())
    (job,) = (each for each in told["jobs"] if each["name"] == "not-available")
    assert len(job["tasks"]) == 4
    assert {task["node"] for task in job["tasks"]} == {"n1"}


@pytest.mark.parametrize("label", [{}, {LABEL_GPU_MODEL: "A100"}])
def test_a_node_has_the_label_of_its_model_only_if_it_had_it(label: dict[str, str]) -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1, model="A100", labels=label)
    (node,) = as_file(Picture(cluster.snapshot()), Names())["nodes"]
    assert ("gpuModel" in node) is bool(label)


@pytest.mark.parametrize("part", every(N_PARTS, range(N_PARTS)))
def test_files_of_own_scenarios_are_decided_alike(part: int) -> None:
    """What a file cannot say is told in `about`, and passed over."""
    n_alike = 0
    for case in chain.from_iterable(map(cases_in, OWN_FILES[part::N_PARTS])):
        picture = picture_of(case)
        told = as_file(picture, Names())
        if "about" in told or case.is_out_of_format:
            continue
        assert fates(picture_of(read(told)).plan) == fates(picture.plan), case.id
        n_alike += 1
    assert n_alike >= 40


@pytest.mark.parametrize("name", ["", "x"])
def test_names_are_as_they_are_without_a_word(name: str) -> None:
    assert Names().job(name) == name
    assert Names(is_anonymous=True).job("") == ""
