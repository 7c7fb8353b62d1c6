"""The columns of `kubectl get`, and the generation that a status is for."""

import re
from functools import partial
from typing import Any

from tests.integration.cycle.two_projects import Scene


def table(scene: Scene, *words: str) -> dict[str, dict[str, str]]:
    """Name -> column -> cell, as kubectl prints them."""
    printed = scene.cluster.kubectl("get", *words).splitlines()
    heads = list(re.finditer(r"\S+(?: \S+)*", printed[0]))
    starts = [each.start() for each in heads]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    rows = [[line[start:end].strip() for start, end in spans] for line in printed[1:]]
    return {row[0]: dict(zip((each[0] for each in heads), row, strict=True)) for row in rows}


def conditions(obj: Any) -> dict[str, tuple[str, str, int]]:
    return {
        each["type"]: (each["status"], each["reason"], each["observedGeneration"])
        for each in obj["status"]["conditions"]
    }


async def test_columns_tell_what_is_borrowed_and_what_waits(scene: Scene) -> None:
    labels = {"ballast.dev/pod-group": "train"}
    scene.submit_job("team-a", "train", 3, 1000, labels=labels)
    await scene.until_bound("team-a", 3)
    scene.submit_job("team-a", "more", 2, 1000)

    def project() -> dict[str, str]:
        return table(scene, "gpuprojects.ballast.dev")["team-a"]

    wanted = {"DEPARTMENT": "research", "QUOTA": "2", "LIMIT": "unlimited", "FAIR SHARE": "4"}
    wanted |= {"ALLOCATED": "4", "BORROWED": "2", "WAITING": "1"}
    await scene.until(lambda: wanted.items() <= project().items(), f"{wanted}")
    found = scene.get("gpuprojects/team-a")
    assert conditions(found)["OverQuota"][:2] == ("True", "AboveQuota")
    assert found["status"]["state"] == "OverQuota"

    def department() -> tuple[str, str]:
        gpu = scene.get("gpudepartments/research").get("status", {}).get("gpu", {})
        return gpu.get("quota", ""), gpu.get("allocated", "")

    await scene.until(lambda: department() == ("4", "4"), "the sum over its projects")

    def projects() -> list[str]:
        groups = table(scene, "gpupodgroups.ballast.dev", "-n", "team-a")
        return [each["PROJECT"] for each in groups.values()]

    await scene.until(lambda: projects() == ["team-a"], "the group's project")
    nodes = table(scene, "gpunodes.ballast.dev")
    wanted = {"POOL": "default", "CARDS": "2", "HEALTHY": "2", "USED": "2", "PODS": "2"}
    assert [{key: each[key] for key in wanted} for each in nodes.values()] == [wanted] * 2


async def test_project_whose_node_pool_is_mistyped_is_shown_as_not_valid(scene: Scene) -> None:
    def shown() -> tuple[str, str]:
        row = table(scene, "gpuprojects.ballast.dev")["team-a"]
        return row["QUOTA"], row["VALID"]

    scene.submit_job("team-a", "served", 1, 1000)
    await scene.until_bound("team-a", 1)
    await scene.until(lambda: shown() == ("2", "True"), "a project that is valid")
    pools = '{"spec": {"nodePools": [{"name": "defualt", "gpu": {"quota": 2}}]}}'
    scene.cluster.kubectl("patch", "gpuproject", "team-a", "--type=merge", "-p", pools)
    await scene.until(lambda: shown() == ("0", "False"), "one without the node pool")
    (told,) = [
        each["message"]
        for each in scene.get("gpuprojects/team-a")["status"]["conditions"]
        if each["type"] == "Valid"
    ]
    assert told.startswith("node pool defualt does not exist: its figures have no effect")


async def test_status_speaks_of_the_generation_that_is_in_force(scene: Scene) -> None:
    def project(name: str) -> Any:
        return scene.get(f"gpuprojects/{name}")

    def is_current(name: str) -> bool:
        found = project(name)
        generation, status = found["metadata"]["generation"], found.get("status", {})
        seen = {each["observedGeneration"] for each in status.get("conditions", ())}
        return status.get("observedGeneration") == generation and seen == {generation}

    for name in ("team-a", "team-b"):
        await scene.until(partial(is_current, name), f"the status of {name}")

    def allocated() -> str:
        return str(project("team-a")["status"]["gpu"]["allocated"])

    # One report ends before the next begins: with the second figure, all of the first is written.
    for figure in ("1", "2"):
        scene.submit_job("team-a", f"served-{figure}", 1, 1000)
        await scene.until(lambda wanted=figure: allocated() == wanted, "its figures")  # type: ignore[misc]
    untouched = project("team-b")["metadata"]["resourceVersion"]
    patch = '{"spec": {"minRuntime": {"reclaimSeconds": 601}}}'
    scene.cluster.kubectl("patch", "gpuproject", "team-a", "--type=merge", "-p", patch)
    assert project("team-a")["metadata"]["generation"] == 2
    await scene.until(lambda: is_current("team-a"), "the status of the second generation")
    assert project("team-b")["metadata"]["resourceVersion"] == untouched, "nothing new, no write"
