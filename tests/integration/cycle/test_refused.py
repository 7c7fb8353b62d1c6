"""Pods that kube-scheduler does not bind where they are planned, and a kube-scheduler that is away.

None of them is deleted, none has others evicted again and again, and none keeps a place.
"""

import asyncio
import json
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.cycle.claims import (
    bind_claim,
    bind_open_claim,
    open_claim,
    selected_node,
    volume,
    with_claim,
)
from tests.integration.cycle.two_projects import BIND_S, DONE_S, Scene
from tests.integration.webhooks.test_other_mutators import mutating_policy
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.sight import until
from tests.support.webhook_config import REGISTRATION

PORT = 9123


@pytest.fixture
async def wide(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """Four nodes of eight cards. Whether a pod is refused is judged later: a busy kube-scheduler
    binds fifty at once in any order."""
    async with Scene.open(cluster, n_nodes=4, cards=8, bind_s=2 * BIND_S) as opened:
        yield opened
        await audited.finish()


def with_port(body: dict[str, Any]) -> dict[str, Any]:
    """The pod, or the pods of the owner, on a port of their node that only one pod can have."""
    spec = body["spec"]["template"]["spec"] if "template" in body["spec"] else body["spec"]
    spec["containers"][0]["ports"] = [{"containerPort": PORT, "hostPort": PORT}]
    return body


def replica_set(name: str, namespace: str, n_pods: int, milli: int) -> dict[str, Any]:
    template = workloads.pod_template(milli, labels={"app": name})
    template["spec"]["restartPolicy"] = "Always"
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": n_pods,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def n_refusals(scene: Scene, project: str) -> int:
    """How often kube-scheduler refused a pod of the project, as its pods say; the most of all."""
    pods = scene.admin.get(f"/api/v1/namespaces/{project}/pods")["items"]
    notes = [pod["metadata"].get("annotations", {}) for pod in pods]
    return max((int(note.get("ballast.dev/refused", "0").split()[0]) for note in notes), default=0)


def take_ports(scene: Scene) -> None:
    """A pod without GPUs on each node holds the port."""
    for node in scene.admin.get("/api/v1/nodes")["items"]:
        name = node["metadata"]["name"]
        body = with_port(workloads.bare_pod(f"port-{name}", "default", 0, gated=False))
        body["spec"] |= {"nodeName": name}
        del body["spec"]["containers"][0]["resources"]
        scene.admin.post("/api/v1/namespaces/default/pods", body)


def names_of(scene: Scene, namespace: str) -> set[str]:
    pods = scene.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {pod["metadata"]["name"] for pod in pods}


def is_away(scene: Scene) -> bool:
    return "ballast_control_scheduler_away 1.0" in scene.metrics()


def n_released(scene: Scene) -> int:
    found = re.findall(r"^ballast_control_released_pods_total\{.*\} (\S+)$", scene.metrics(), re.M)
    return int(sum(map(float, found)))


async def test_frozen_kube_scheduler_costs_no_job_a_pod(wide: Scene) -> None:
    wide.plane.freeze("kube-scheduler")

    def submit(first: int, last: int) -> None:
        for number in range(first, last):
            body = workloads.job(f"job-{number}", "team-a", 1, 500)
            del body["spec"]["backoffLimit"]
            wide.admin.post("/apis/batch/v1/namespaces/team-a/jobs", body)

    submit(0, 25)
    await wide.until(lambda: len(names_of(wide, "team-a")) == 25, "25 pods")
    await wide.until(lambda: is_away(wide), "the breaker")
    submit(25, 50)
    await wide.until(lambda: len(names_of(wide, "team-a")) == 50, "50 pods")
    before = names_of(wide, "team-a")
    await wide.until(lambda: "SchedulerAway" in wide.reasons("team-a"), "the reason")
    # The breaker must hold through several trials, one in each third of the bind time-out.
    tried = n_released(wide) + 6
    await wide.until(lambda: n_released(wide) >= tried, "six trials")
    assert names_of(wide, "team-a") == before
    wide.plane.thaw("kube-scheduler")
    await wide.until_bound("team-a", 50)
    assert names_of(wide, "team-a") == before
    jobs = wide.admin.get("/apis/batch/v1/namespaces/team-a/jobs")["items"]
    assert [job["status"].get("failed", 0) for job in jobs] == [0] * 50
    assert "PlacementRefused" not in wide.reasons("team-a")


async def test_gang_of_bare_pods_stays_whole_when_kube_scheduler_was_away(scene: Scene) -> None:
    scene.plane.freeze("kube-scheduler")
    body = workloads.pod_group("gang", "team-a", 4)
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", body)
    for number in range(4):
        scene.submit_pod("team-a", f"member-{number}", 1000, group="gang")
    await scene.until(lambda: is_away(scene), "the breaker")
    scene.plane.thaw("kube-scheduler")
    await scene.until_bound("team-a", 4)
    assert names_of(scene, "team-a") == {f"member-{number}" for number in range(4)}


async def test_bare_pod_that_is_refused_leaves_its_place_to_others(scene: Scene) -> None:
    take_ports(scene)
    notebook = with_port(workloads.bare_pod("notebook", "team-a", 2000))
    scene.admin.post("/api/v1/namespaces/team-a/pods", notebook)
    await scene.until(lambda: "PlacementRefused" in scene.reasons("team-a"), "the refusal")
    scene.submit_job("team-b", "train", 2, 1000)
    await scene.until_bound("team-b", 2)
    stored = scene.admin.get("/api/v1/namespaces/team-a/pods/notebook")
    assert not stored["status"].get("nominatedNodeName")
    event = next(
        each["note"]
        for each in scene.admin.get("/apis/events.k8s.io/v1/namespaces/team-a/events")["items"]
        if each["reason"] == "PlacementRefused"
    )
    assert "free ports" in event


async def test_refused_pod_is_planned_again_where_it_can_be_bound(scene: Scene) -> None:
    take_ports(scene)
    scene.admin.post(
        "/api/v1/namespaces/team-a/pods", with_port(workloads.bare_pod("a", "team-a", 500))
    )
    await scene.until(lambda: "PlacementRefused" in scene.reasons("team-a"), "the refusal")
    uid = scene.admin.get("/api/v1/namespaces/team-a/pods/a")["metadata"]["uid"]
    scene.cluster.kubectl("delete", "pod", "port-gpu-node-0001", "-n", "default", "--wait=false")
    await scene.until_bound("team-a", 1)
    stored = scene.admin.get("/api/v1/namespaces/team-a/pods/a")
    assert (stored["metadata"]["uid"], stored["spec"]["nodeName"]) == (uid, "gpu-node-0001")


async def test_pods_that_are_refused_for_ever_have_no_other_team_evicted(scene: Scene) -> None:
    take_ports(scene)
    path = "/apis/apps/v1/namespaces"
    scene.admin.post(f"{path}/team-a/replicasets", replica_set("works", "team-a", 4, 1000))
    await scene.until_bound("team-a", 4)
    before = names_of(scene, "team-a")
    doomed = with_port(replica_set("doomed", "team-b", 2, 1000))
    scene.admin.post(f"{path}/team-b/replicasets", doomed)
    await scene.until(lambda: bool(scene.reasons("team-b")), "the reason")
    await scene.until_decided(5)
    assert names_of(scene, "team-a") == before
    assert "Reclaimed" not in scene.reasons("team-a")


async def test_pod_that_was_refused_twice_has_nothing_evicted_any_more(scene: Scene) -> None:
    """What refuses it is nothing that a plan knows of, and nothing that it could know to be left
    to kube-scheduler."""
    path = "/apis/apps/v1/namespaces"
    scene.admin.post(f"{path}/team-a/replicasets", replica_set("works", "team-a", 4, 1000))
    await scene.until_bound("team-a", 4)
    huge = replica_set("huge", "team-b", 1, 1000)
    asked = huge["spec"]["template"]["spec"]["containers"][0]["resources"]
    asked["requests"] = asked["requests"] | {"ephemeral-storage": "999Ti"}
    asked["limits"] = asked["requests"]
    scene.admin.post(f"{path}/team-b/replicasets", huge)

    await scene.until(lambda: n_refusals(scene, "team-b") >= 2, "two refusals")
    await scene.until_bound("team-a", 4)
    before = names_of(scene, "team-a")
    await scene.until_decided(5)
    assert names_of(scene, "team-a") == before
    assert len(names_of(scene, "team-b")) == 1


def can_be_changed(scene: Scene, pod: str) -> bool:
    """Whether the API server takes a change of a pod in the namespace `default`."""
    try:
        scene.cluster.kubectl(
            "annotate", "pod", pod, "--namespace=default", "--overwrite", f"x={time.time_ns()}"
        )
    except subprocess.CalledProcessError:
        return False
    return True


async def until_in_use(scene: Scene) -> None:
    """Until no pod with a name that begins with `frozen` can be changed: the API server takes up
    policies in the background."""
    canary = workloads.bare_pod("frozen-canary", "default", 0, gated=False)
    canary["spec"]["schedulerName"] = "none"
    del canary["spec"]["containers"][0]["resources"]
    scene.admin.post("/api/v1/namespaces/default/pods", canary)
    await scene.until(lambda: not can_be_changed(scene, "frozen-canary"), "the policy in use")


async def until_no_rows(scene: Scene) -> None:
    async def holds() -> bool:
        return not (await scene.look("team-a")).n_rows

    await until(holds, DONE_S, lambda: "no rows in the ledger")


@pytest.mark.binds_nothing
async def test_pod_whose_release_another_policy_makes_invalid_keeps_no_place(scene: Scene) -> None:
    pulled = 'Object.spec.containers{name: "main", imagePullPolicy: "IfNotPresent"}'
    expression = f"Object{{spec: Object.spec{{containers: [{pulled}]}}}}"
    policies = mutating_policy(expression, "UPDATE")
    for each in policies:
        scene.cluster.kubectl("apply", "--server-side", "-f-", stdin=json.dumps(each))
    try:
        await until_in_use(scene)
        scene.submit_pod("team-a", "frozen", 2000)
        await scene.until(lambda: "ReleaseRefused" in scene.reasons("team-a"), "the reason")
        (event,) = scene.full_events("team-a")
        assert "ImagePullPolicy" in event["note"]
        await until_no_rows(scene)  # the reason is told first
    finally:
        for each in policies:
            scene.cluster.kubectl("delete", each["kind"], each["metadata"]["name"])


async def test_pod_whose_release_a_policy_refuses_gives_its_place_back(scene: Scene) -> None:
    registration = "/apis/admissionregistration.k8s.io/v1"
    scene.admin.post(
        f"{registration}/validatingadmissionpolicies",
        {
            "metadata": {"name": "frozen-pods"},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["UPDATE"],
                            "resources": ["pods"],
                        }
                    ]
                },
                "validations": [
                    {
                        "expression": "!object.metadata.name.startsWith('frozen')",
                        "message": "this pod may not be changed",
                    }
                ],
            },
        },
    )
    scene.admin.post(
        f"{registration}/validatingadmissionpolicybindings",
        {
            "metadata": {"name": "frozen-pods"},
            "spec": {"policyName": "frozen-pods", "validationActions": ["Deny"]},
        },
    )
    await until_in_use(scene)
    scene.submit_pod("team-a", "frozen", 2000)
    await scene.until(lambda: "ReleaseRefused" in scene.reasons("team-a"), "the reason")
    scene.submit_job("team-b", "train", 4, 1000)
    await scene.until_bound("team-b", 4)
    assert names_of(scene, "team-a") == {"frozen"}


@pytest.mark.parametrize("is_silent", [False, True], ids=["refuses connections", "is silent"])
async def test_pod_whose_release_a_webhook_that_is_away_stops_says_so_and_gives_its_place_back(
    scene: Scene, is_silent: bool
) -> None:
    away = socket.create_server((LOOPBACK, 0)) if is_silent else None
    port = away.getsockname()[1] if away else free_port()
    registry = f"{REGISTRATION}/validatingwebhookconfigurations"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    webhook = {
        "name": "frozen.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://{LOOPBACK}:{port}"},
        "rules": [rule | {"resources": ["pods"]}],
        "matchConditions": [
            {"name": "frozen", "expression": "object.metadata.name.startsWith('frozen')"}
        ],
        "sideEffects": "None",
    }
    scene.admin.post(registry, {"metadata": {"name": "away"}, "webhooks": [webhook]})
    try:
        await until_in_use(scene)
        scene.submit_pod("team-a", "frozen", 2000)
        await scene.until_told("team-a", "ReleaseRefused", "frozen")
        (event,) = scene.full_events("team-a")
        assert 'failed calling webhook "frozen.example.com"' in event["note"]
        # Each try takes ten seconds where the webhook is silent, and the tests' wait is shorter.
        if not is_silent:
            scene.submit_job("team-b", "train", 4, 1000)
            await scene.until_bound("team-b", 4)
    finally:
        scene.admin.delete(f"{registry}/away")
        if away:
            away.close()
    scene.cluster.kubectl("delete", "job", "train", "-n", "team-b", "--ignore-not-found")
    await scene.until_bound("team-a", 1)


async def test_pods_whose_volume_is_missing_evict_no_pod(scene: Scene) -> None:
    path = "/apis/apps/v1/namespaces"
    scene.admin.post(f"{path}/team-b/replicasets", replica_set("works", "team-b", 4, 1000))
    await scene.until_bound("team-b", 4)
    before = names_of(scene, "team-b")
    never = with_claim(replica_set("never", "team-a", 2, 1000), "missing")
    scene.admin.post(f"{path}/team-a/replicasets", never)
    await scene.until(lambda: "ClaimsNotMet" in scene.reasons("team-a"), "the reason")
    await scene.until_decided(5)
    assert names_of(scene, "team-b") == before
    # It starts as soon as the claim is there and bound.
    scene.admin.post("/api/v1/persistentvolumes", volume("disk", "gpu-node-0001"))
    bind_claim(scene, "missing", "disk")
    await scene.until_bound("team-a", 2)


async def test_claim_without_a_volume_is_judged_by_its_storage_class(scene: Scene) -> None:
    open_claim(scene, "scratch", "fast")
    pod = with_claim(workloads.bare_pod("writer", "team-a", 500), "scratch")
    scene.admin.post("/api/v1/namespaces/team-a/pods", pod)

    def notes() -> str:
        path = "/apis/events.k8s.io/v1/namespaces/team-a/events"
        return " ".join(event["note"] for event in scene.admin.get(path)["items"])

    await scene.until(lambda: "StorageClass fast does not exist" in notes(), "the reason")
    scene.submit_pod("team-a", "other", 500)
    await scene.until_bound("team-a", 1)


async def test_pod_is_planned_where_its_volume_can_be_reached(scene: Scene) -> None:
    for number in (0, 1):
        name = f"zone-{number}"
        scene.admin.post("/api/v1/persistentvolumes", volume(name, f"gpu-node-000{number}"))
        bind_claim(scene, name, name)
        body = with_claim(workloads.bare_pod(f"on-{number}", "team-a", 500), name)
        scene.admin.post("/api/v1/namespaces/team-a/pods", body)
    await scene.until_bound("team-a", 2)
    assert "PlacementRefused" not in scene.reasons("team-a")
    pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
    where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    assert where == {"on-0": "gpu-node-0000", "on-1": "gpu-node-0001"}


async def start_another(scene: Scene, n_bound: int) -> None:
    """A pod of team-b, so that there are so many; and the controller's next look at all."""
    scene.submit_pod("team-b", f"pod-{n_bound}", 500)
    await scene.until_bound("team-b", n_bound)
    await asyncio.sleep(BIND_S)


async def test_a_pod_whose_volume_is_being_made_is_not_refused(scene: Scene) -> None:
    late = {
        "metadata": {"name": "late"},
        "provisioner": "example.com/disks",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    scene.admin.ensure("/apis/storage.k8s.io/v1/storageclasses", late)
    open_claim(scene, "home", "late")
    body = with_claim(workloads.bare_pod("slow", "team-a", 1000), "home")
    scene.admin.post("/api/v1/namespaces/team-a/pods", body)
    await scene.until(lambda: bool(selected_node(scene, "home")), "kube-scheduler to choose a node")
    await start_another(scene, 1)
    # This one is seen released, later than the slow one, before it is bound.
    scene.plane.freeze("kube-scheduler")
    before = n_released(scene)
    scene.submit_pod("team-b", "pod-2", 500)
    await scene.until(lambda: n_released(scene) > before, "the release")
    await scene.until(lambda: is_away(scene), "the breaker")
    scene.plane.thaw("kube-scheduler")
    for n_bound in (3, 4):
        await start_another(scene, n_bound)
    assert n_refusals(scene, "team-a") == 0
    node = selected_node(scene, "home")
    scene.admin.post("/api/v1/persistentvolumes", volume("disk", node))
    bind_open_claim(scene, "home", "disk")
    await scene.until_bound("team-a", 1)
    assert "PlacementRefused" not in scene.reasons("team-a")
