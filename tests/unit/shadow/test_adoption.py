"""A cluster that another scheduler runs, decided on as if Ballast ran it."""

from typing import Any

import pytest

from extender.api.objects import ClaimSource, Node, Pod, SchedulingGate, Volume
from extender.shadow import adoption
from extender.shadow.adoption import Seen, adopt
from extender.shadow.peers import Peers, read_peers
from extender.state.model import GPU
from extender.view.picture import Picture
from tests.support.builders import node, pod, project

NOW_S = 1_800_000_000


def plain(name: str, space: str = "team-a", gpus: int = 1) -> Any:
    """A pod with whole GPUs as the stock scheduler has it."""
    return pod(name).of(space).direct().needs(1000 * gpus).priority(0)


def on(built: Pod, name: str) -> Pod:
    built.spec.node_name = name
    built.status.phase = "Running"
    return built


def nodes(*names: str, gpus: int = 2) -> list[Node]:
    return [node(name).gpus(gpus).build() for name in names]


def picture(seen: Seen, *queues: Any) -> Picture:
    return Picture(adopt(seen, queues).state.snapshot(NOW_S))


def held(found: Picture) -> dict[str, int]:
    return {
        queue: share.allocated[GPU]
        for (queue, _), share in found.plan.shares.items()
        if not queue.startswith("department/") and "/user/" not in queue
    }


def test_running_pods_are_work_of_the_project_of_their_namespace() -> None:
    pods = [on(plain("a").build(), "n1"), on(plain("b", "team-b").build(), "n1")]
    found = picture(Seen(nodes=nodes("n1"), pods=pods))
    assert held(found) == {"team-a": 1000, "team-b": 1000}
    assert {each.state for w in found.snapshot.workloads.values() for each in w.pods} == {"bound"}


def test_without_queues_each_namespace_has_the_same_share() -> None:
    pods = [on(plain(f"a{i}").build(), f"n{i // 2}") for i in range(4)]
    waiting = [plain(f"b{i}", "team-b").build() for i in range(4)]
    found = picture(Seen(nodes=nodes("n0", "n1"), pods=[*pods, *waiting]))
    owed = {queue: share.fair_share[GPU] for (queue, _), share in found.plan.shares.items()}
    assert (owed["team-a"], owed["team-b"]) == (2000, 2000)
    assert len(found.plan.evictions) == 2
    assert {each.workload.partition("/")[0] for each in found.plan.evictions} == {"team-a"}


def test_a_pod_without_a_class_counts_as_training_and_a_high_priority_is_not_preemptible() -> None:
    pods = [plain("none").build(), plain("high").priority(100).build()]
    pods.append(plain("low").priority(99).build())
    workloads = picture(Seen(nodes=nodes("n1"), pods=pods)).snapshot.workloads
    found = {w.name: (w.kind, w.priority, w.is_preemptible) for w in workloads.values()}
    assert found == {
        "none": ("training", 50, True),
        "high": ("training", 100, False),
        "low": ("training", 99, True),
    }


def test_given_projects_take_the_place_of_namespaces() -> None:
    ours = project("vision").of("all").namespaces("team-a", "team-b").quota(2).build()
    pods = [on(plain("a").build(), "n1"), plain("b", "team-b").build(), plain("c", "other").build()]
    done = adopt(Seen(nodes=nodes("n1"), pods=pods), [ours])
    found = Picture(done.state.snapshot(NOW_S))
    assert [each.workload.key for each in found.plan.admissions] == ["team-b/b"]
    assert done.assumed[adoption.NO_PROJECT] == 1


def test_gate_of_kueue_holds_nothing_and_a_gate_of_the_owner_does() -> None:
    def gated(name: str, gate: str) -> Pod:
        built: Pod = plain(name).build()
        built.spec.scheduling_gates = [SchedulingGate(gate)]
        return built

    pods = [gated("a", "kueue.x-k8s.io/admission"), gated("b", "example.com/data")]
    found = picture(Seen(nodes=nodes("n1"), pods=pods))
    assert [each.workload.key for each in found.plan.admissions] == ["team-a/a"]


def test_pod_with_a_volume_has_a_place_although_no_claim_is_read() -> None:
    waits: Pod = plain("a").build()
    waits.spec.volumes = [Volume(persistent_volume_claim=ClaimSource(claim_name="data"))]
    found = picture(Seen(nodes=nodes("n1"), pods=[waits]))
    assert [each.workload.key for each in found.plan.admissions] == ["team-a/a"]


@pytest.mark.parametrize(
    "key",
    [
        "jobset.sigs.k8s.io/jobset-name",
        "kueue.x-k8s.io/pod-group-name",
        "ray.io/cluster",
        "training.kubeflow.org/job-name",
    ],
)
def test_pods_of_one_owner_are_a_gang_of_all_that_there_are(key: str) -> None:
    pods = [plain(f"w{i}").labels({key: "train"}).build() for i in range(3)]
    found = picture(Seen(nodes=nodes("n1"), pods=pods))
    assert found.snapshot.workloads["team-a/train"].min_member == 3
    assert not found.plan.admissions


def test_pod_group_of_a_peer_says_the_size_of_the_gang() -> None:
    notes = {"scheduling.k8s.io/group-name": "pg"}
    pods = [plain(f"w{i}").notes(notes).build() for i in range(3)]
    group = {"metadata": {"namespace": "team-a", "name": "pg"}, "spec": {"minMember": 2}}
    found = picture(Seen(nodes=nodes("n1"), pods=pods, peers=read_peers([group], [])))
    assert found.snapshot.workloads["team-a/pg"].min_member == 2
    assert len(found.plan.admissions) == 1


@pytest.mark.parametrize("space", ["kai-resource-reservation", "runai-reservation"])
def test_shared_cards_of_kai_are_counted_once(space: str) -> None:
    """KAI keeps a pod of its own for the card that these two share."""
    label = {"runai-gpu-group": "g"}
    halves = [on(pod(n).direct().needs(500).labels(label).build(), "n1") for n in ("a", "b")]
    keeper = on(plain("keep", space).build(), "n1")
    done = adopt(Seen(nodes=nodes("n1"), pods=[*halves, keeper]))
    found = Picture(done.state.snapshot(NOW_S))
    cards = [each.cards[0].index for w in found.snapshot.workloads.values() for each in w.pods]
    assert cards[0] == cards[1]
    assert held(found) == {"team-a": 1000}
    assert not done.assumed[adoption.GUESSED_CARD]


def test_share_whose_card_is_not_known_is_said() -> None:
    done = adopt(Seen(nodes=nodes("n1"), pods=[on(pod("a").direct().needs(500).build(), "n1")]))
    assert done.assumed[adoption.GUESSED_CARD] == 1


def test_share_in_words_of_hami_is_read() -> None:
    built = plain("a").build()
    built.spec.containers[0].resources.limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000}
    built.spec.containers[0].resources.requests = None
    found = picture(Seen(nodes=nodes("n1"), pods=[on(built, "n1")]))
    assert held(found) == {"team-a": 500}


def test_more_pods_than_cards_are_said() -> None:
    pods = [on(plain("a", gpus=2).build(), "n1"), on(plain("b").build(), "n1")]
    done = adopt(Seen(nodes=nodes("n1"), pods=pods))
    assert done.assumed[adoption.NO_CARD_LEFT] == 1


def test_suspended_job_of_kueue_waits_as_its_workload_says() -> None:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }
    workload = {
        "metadata": {
            "name": "job-x", "namespace": "team-a", "uid": "u",
            "creationTimestamp": "2026-11-25T12:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "j"}],
        },
        "spec": {"podSets": [{"name": "main", "count": 2, "template": template}]},
    }  # fmt: skip
    found = picture(Seen(nodes=nodes("n1"), peers=read_peers([], [workload])))
    assert found.snapshot.workloads["team-a/job-x"].min_member == 2
    assert [each.workload.key for each in found.plan.admissions] == ["team-a/job-x"]
    admitted = {**workload, "status": {"conditions": [{"type": "Admitted", "status": "True"}]}}
    assert read_peers([], [admitted]).pods == []
    assert read_peers([], [{"metadata": {}, "spec": {}}]).assumed


def test_what_is_not_known_is_counted() -> None:
    high = plain("b").priority(100).build()
    done = adopt(Seen(nodes=nodes("n1"), pods=[on(plain("a").build(), "n1"), high]))
    assert done.assumed[adoption.NO_RUN_TIME] == 2
    assert done.assumed[adoption.NO_SAVES] == 1
    assert done.assumed[adoption.HIGH] == 1


def test_gang_that_volcano_has_not_enqueued_is_said() -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "metadata": {"namespace": "team-a", "name": "pg"},
        "spec": {"minMember": 2},
        "status": {"phase": "Pending"},
    }
    peers: Peers = read_peers([group], [])
    assert adopt(Seen(peers=peers)).assumed[adoption.NO_PODS_YET] == 1


def test_gpu_memory_on_a_node_that_does_not_say_its_cards_size_is_said() -> None:
    (unsized,) = nodes("n1")
    del (unsized.metadata.labels or {})["nvidia.com/gpu.memory"]
    asks = on(pod("a").of("team-a").direct().notes({"gpu-memory": "8000"}).build(), "n1")
    done = adopt(Seen(nodes=[unsized], pods=[asks]))
    assert done.assumed[adoption.NO_CARD_SIZE] == 1
    assert not done.assumed[adoption.NO_CARD_LEFT]


def test_whole_cards_go_in_order_and_a_share_to_the_fullest_card() -> None:
    pods = [on(plain("a").build(), "n1")]
    pods += [
        on(pod(n).direct().needs(milli).build(), "n1") for n, milli in (("b", 500), ("c", 250))
    ]
    found = picture(Seen(nodes=nodes("n1", gpus=3), pods=pods))
    workloads = found.snapshot.workloads.values()
    cards = {each.name: each.cards[0].index for w in workloads for each in w.pods}
    assert cards == {"a": 0, "b": 1, "c": 1}
