"""The controller on a real control plane: decisions, writes, repairs and reports."""

from extender.kube.resources import GPU_NODES
from tests.integration.cycle.two_projects import NEVER_S, Scene
from tests.support import workloads
from tests.support.auditor import Auditor


async def test_halves_share_cards_and_the_annotation_names_them(scene: Scene) -> None:
    scene.submit_job("team-a", "halves", 4, 500)
    await scene.until_bound("team-a", 4)
    pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
    cards = {
        (pod["spec"]["nodeName"], pod["metadata"]["annotations"]["ballast.dev/cards"])
        for pod in pods
    }
    assert len(cards) == 2
    assert all(text.endswith(":500:40960") for _, text in cards)


async def test_place_is_held_while_victims_are_slow_to_leave(scene: Scene) -> None:
    scene.submit_job("team-a", "slow", 4, 1000, stop_s=NEVER_S)
    await scene.until_bound("team-a", 4)
    scene.submit_job("team-b", "owner", 2, 1000)

    def is_nominated() -> list[bool]:
        nodes = scene.get("gpunodes")["items"]
        return sorted(row["state"] == "nominated" for node in nodes for row in node["spec"]["rows"])

    await scene.until(lambda: is_nominated() == [False] * 4 + [True] * 2, "held places")
    # Smaller work of the same project that comes meanwhile gets nothing of them.
    scene.submit_job("team-b", "late", 1, 500)
    await scene.until_decided(2)
    # Evictions run beside the cycle.
    await scene.until(lambda: scene.n_ending("team-a") == 2, "both victims to end")
    scene.end_now("team-a")
    await scene.until_bound("team-b", 2)
    bound = scene.admin.get("/api/v1/namespaces/team-b/pods")["items"]
    names = {pod["metadata"]["labels"]["job-name"] for pod in bound if pod["spec"].get("nodeName")}
    assert names == {"owner"}


async def test_a_held_place_is_given_up_for_its_owner_and_nobody_is_evicted(scene: Scene) -> None:
    scene.submit_job("team-a", "ends", 1, 1000, stop_s=NEVER_S)
    scene.submit_job("team-a", "stays", 1, 1000)
    scene.submit_job("team-b", "runs", 2, 1000)
    await scene.until_bound("team-a", 2)
    await scene.until_bound("team-b", 2)
    scene.submit_job("team-b", "borrows", 1, 1000)
    scene.cluster.kubectl("delete", "job", "ends", "-n", "team-a", "--wait=false")

    def nominated() -> list[str]:
        rows = (row for node in scene.get("gpunodes")["items"] for row in node["spec"]["rows"])
        return [row["namespace"] for row in rows if row["state"] == "nominated"]

    await scene.until(lambda: nominated() == ["team-b"], "a place that a pod still has to leave")
    scene.submit_job("team-a", "comes", 1, 1000)
    await scene.until(lambda: nominated() == ["team-a"], "the place to be given up")
    scene.end_now("team-a")
    await scene.until(lambda: nominated() == [], "the place to be taken")
    await scene.until_bound("team-a", 2)
    assert len((await scene.look("team-b")).bound) == 2
    assert "Reclaimed" not in {reason for reason, _ in scene.events("team-b")}


async def test_victims_under_a_disruption_budget_are_left_alone(scene: Scene) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "team-a"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"keep": "yes"}}},
    }
    scene.admin.post("/apis/policy/v1/namespaces/team-a/poddisruptionbudgets", budget)
    scene.submit_job("team-a", "kept", 3, 1000, labels={"keep": "yes"})
    await scene.until_bound("team-a", 3)
    scene.submit_job("team-a", "taken", 1, 1000)
    await scene.until_bound("team-a", 4)
    scene.submit_job("team-b", "owner", 2, 1000)
    await scene.until_bound("team-b", 1)
    evicted = {pod for reason, pod in scene.events("team-a") if reason == "Reclaimed"}
    assert all(name.startswith("taken-") for name in evicted)


async def test_non_preemptible_work_waits_at_its_quota_and_says_why(scene: Scene) -> None:
    firm = {"ballast.dev/preemptibility": "non-preemptible"}
    scene.submit_job("team-a", "firm", 3, 1000, labels=firm)
    await scene.until_bound("team-a", 2)
    await scene.until(
        lambda: "NonPreemptibleOverQuota" in {reason for reason, _ in scene.events("team-a")},
        "the reason as an event",
    )


async def test_gang_that_cannot_be_whole_holds_nothing_until_it_can(scene: Scene) -> None:
    scene.submit_job("team-a", "small", 1, 1000)
    await scene.until_bound("team-a", 1)
    body = workloads.pod_group("gang", "team-b", 4)
    scene.admin.post(f"{workloads.API}/namespaces/team-b/gpupodgroups", body)
    scene.submit_job("team-b", "gang", 4, 1000, group="gang")

    def reason() -> str:
        group = scene.get("namespaces/team-b/gpupodgroups/gang")
        conditions = group.get("status", {}).get("conditions", [])
        return next((str(each["reason"]) for each in conditions), "")

    await scene.until(lambda: reason() in ("InsufficientGpu", "OverFairShare"), "a reason to wait")
    assert (await scene.look("team-b")).n_rows == 1
    scene.plane.admin.post(
        f"{workloads.API}/namespaces/team-b/gpupodgroups", workloads.pod_group("next", "team-b", 3)
    )
    scene.submit_job("team-b", "next", 3, 1000, group="next")
    await scene.until_bound("team-b", 3)


async def test_released_pod_keeps_its_own_affinity_and_its_row_goes_with_it(scene: Scene) -> None:
    scene.submit_pod("team-a", "lone", 500)
    await scene.until_bound("team-a", 1)
    spec = scene.admin.get("/api/v1/namespaces/team-a/pods/lone")["spec"]
    assert "affinity" not in spec, "of a small cluster"
    scene.cluster.kubectl("delete", "pod", "lone", "-n", "team-a", "--wait=false")

    def n_rows() -> int:
        return sum(len(node["spec"]["rows"]) for node in scene.get("gpunodes")["items"])

    await scene.until(lambda: n_rows() == 0, "no row")


async def test_direct_pods_are_placed_by_the_extender_within_the_share(scene: Scene) -> None:
    for number in range(3):
        scene.submit_pod("team-a", f"direct-{number}", 500, gated=False)
    await scene.until_bound("team-a", 3)
    sight = await scene.look("team-a")
    assert sight.n_rows == 3


async def test_node_status_is_asserted_again_when_somebody_zeroes_it(scene: Scene) -> None:
    patch = '{"status":{"allocatable":{"ballast.dev/gpu-milli":"0"}}}'
    scene.cluster.kubectl(
        "patch", "node", "gpu-node-0000", "--subresource=status", "--type=merge", "-p", patch
    )
    await scene.until(lambda: scene.nodes_say_milli() == ["2000", "2000"], "gpu-milli again")
    scene.submit_job("team-a", "any", 1, 500)
    await scene.until_bound("team-a", 1)


async def test_row_that_somebody_deletes_is_restored_from_the_binding(
    scene: Scene, audited: Auditor
) -> None:
    scene.submit_pod("team-a", "lone", 500)
    await scene.until_bound("team-a", 1)
    before = await scene.look("team-a")
    # What is done to the ledger here is a fault on purpose; the audit starts anew after it.
    node = next(each for each in (await scene.client.list_all(GPU_NODES)).items if each.spec.rows)
    await scene.client.merge_patch(GPU_NODES, node.metadata.name, {"spec": {"rows": []}})
    await scene.until(
        lambda: sum(len(each["spec"]["rows"]) for each in scene.get("gpunodes")["items"]) == 1,
        "the row again",
    )
    after = await scene.look("team-a")
    assert set(after.rows) == set(before.rows)
    await audited.catch_up()
    assert {each.invariant for each in audited.violations} <= {"A3", "R1"}
    audited.violations.clear()


async def test_project_that_names_no_department_says_so_until_it_is_mended(scene: Scene) -> None:
    scene.submit_pod("team-a", "lone", 500)
    await scene.until_bound("team-a", 1)
    body = workloads.project("team-c", "nowhere", "team-c", 1)
    scene.admin.post(f"{workloads.API}/gpuprojects", body)

    def valid() -> tuple[str, str]:
        conditions = scene.get("gpuprojects/team-c").get("status", {}).get("conditions", [])
        found = [each for each in conditions if each["type"] == "Valid"]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    await scene.until(lambda: valid() == ("False", "UnknownReference"), "the problem")
    await scene.until(
        lambda: ("UnknownReference", "team-c") in scene.events("default"), "an event about it"
    )
    scene.admin.post(f"{workloads.API}/gpudepartments", workloads.department("nowhere", 1))
    await scene.until(lambda: valid() == ("True", "Accepted"), "the condition cleared")


async def test_gang_that_lost_a_member_for_good_is_told_to_be_stale(scene: Scene) -> None:
    body = workloads.pod_group("gang", "team-a", 2)
    body["spec"]["stalenessGraceSeconds"] = -1
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", body)
    for name in ("a", "b"):
        scene.submit_pod("team-a", name, 1000, group="gang")
    await scene.until_bound("team-a", 2)
    scene.cluster.kubectl("delete", "pod", "b", "-n", "team-a", "--wait=false")

    def conditions() -> dict[str, str]:
        group = scene.get("namespaces/team-a/gpupodgroups/gang")
        told = group.get("status", {}).get("conditions", [])
        return {each["type"]: each["status"] for each in told}

    await scene.until(
        lambda: conditions() == {"Scheduled": "False", "Stale": "True"}, "the condition Stale"
    )
