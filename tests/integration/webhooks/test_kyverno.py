"""Kyverno beside Ballast, with the settings of docs/platforms.md and policies of both of its kinds,
which fail closed. Skipped unless `make kyverno` has built it."""

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks, started
from tests.integration.manifests.repository import N_PODS, objects
from tests.support import kyverno as program
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Cluster
from tests.support.installation import ROOT
from tests.support.kyverno.running import Kyverno

pytestmark = pytest.mark.skipif(
    not program.PROGRAMS.has(), reason="no Kyverno: make kyverno builds it"
)
CARDS: Final = 4
PODS: Final = "/api/v1/namespaces/team-a/pods"
GROUP: Final = "policies.kyverno.io"
#: Where the status says that a policy's webhook is registered: in a ClusterPolicy, in others.
READY: Final = "{.status.conditions[?(@.type=='Ready')].status}"
CEL_READY: Final = "{.status.conditionStatus.conditions[?(@.type=='WebhookConfigured')].status}"
Policy = dict[str, Any]


def cluster_policy(name: str, rule: Policy, kind: str = "Pod") -> Policy:
    matched = {"match": {"any": [{"resources": {"kinds": [kind]}}]}}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"background": False, "rules": [{"name": name, **matched, **rule}]},
    }


def cel_policy(
    kind: str, name: str, spec: Policy, groups: str = "", resources: str = "pods"
) -> Policy:
    rule = {
        "apiGroups": [groups],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resources],
    }
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, **spec},
    }


def requires(name: str, pattern: Policy, kind: str = "Pod") -> Policy:
    """A ClusterPolicy that refuses objects without these fields."""
    rule = {"failureAction": "Enforce", "message": f"{name} is required", "pattern": pattern}
    return cluster_policy(f"require-{name}", {"validate": rule}, kind)


def requires_owner(**where: str) -> Policy:
    """A ValidatingPolicy that refuses objects without the label `owner`."""
    checked = "has(object.metadata.labels) && 'owner' in object.metadata.labels"
    validations = [{"expression": checked, "message": "label owner is required"}]
    spec = {"validationActions": ["Deny"], "validations": validations}
    return cel_policy("ValidatingPolicy", "require-owner", spec, **where)


def defaults() -> Policy:
    """A ClusterPolicy that adds requests and limits where there are none, and a node selector."""
    amounts = {"+(cpu)": "1", "+(memory)": "1Gi"}
    container = {"(name)": "*", "resources": {"requests": amounts, "limits": amounts}}
    patch = {"spec": {"containers": [container], "nodeSelector": {"kubernetes.io/os": "linux"}}}
    return cluster_policy("defaults", {"mutate": {"patchStrategicMerge": patch}})


def tolerates() -> Policy:
    """A MutatingPolicy that adds a toleration."""
    added = '{"key": "team", "operator": "Exists"}'
    patch = f'[JSONPatch{{op: "add", path: "/spec/tolerations/-", value: dyn({added})}}]'
    spec = {
        "matchConditions": [
            {"name": "once", "expression": "!object.spec.tolerations.exists(t, t.key == 'team')"}
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    return cel_policy("MutatingPolicy", "tolerates", spec)


def settings_of_page() -> dict[str, Any]:
    """The values of Kyverno's chart as they stand on the page."""
    text = (ROOT / "docs" / "platforms.md").read_text("utf-8")
    blocks = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S))
    (found,) = [each["config"] for each in blocks if "config" in each]
    return dict(found)


@pytest.fixture
async def kyverno(cluster: Cluster) -> AsyncIterator[Kyverno]:
    made = Kyverno(cluster.control_plane, settings_of_page())
    async with started(made):
        yield made


@pytest.fixture
async def scene(cluster: Cluster, kyverno: Kyverno, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards, and Kyverno without policies."""
    async with opened_with_webhooks(cluster, CARDS, tmp_path) as opened:
        yield opened
        assert kyverno.is_alive


async def apply(scene: Scene, *policies: Policy) -> None:
    """Apply the policies; returns when their webhooks are registered."""
    text = yaml.safe_dump_all(policies)
    scene.cluster.kubectl("apply", "--server-side", "-f-", stdin=text)
    for each in policies:
        await scene.until(partial(is_ready, scene, each), f"{path_of(each)} to be ready")


def is_ready(scene: Scene, policy: Policy) -> bool:
    field = READY if policy["kind"] == "ClusterPolicy" else CEL_READY
    return scene.cluster.kubectl("get", *path_of(policy), f"-ojsonpath={field}") == "True"


def path_of(policy: Policy) -> tuple[str, str]:
    group = policy["apiVersion"].partition("/")[0]
    return f"{policy['kind'].lower()}.{group}", policy["metadata"]["name"]


def refusal(scene: Scene, labels: dict[str, str] | None = None) -> str:
    """Why no pod with these labels can be created; empty if one can."""
    containers = [{"name": "main", "image": "example.invalid/none"}]
    body = {
        "metadata": {"name": "tried", "labels": labels or {}},
        "spec": {"containers": containers},
    }
    try:
        scene.admin.post(f"{PODS}?dryRun=All", body)
    except ApiRefusedError as error:
        return str(error)
    return ""


async def until_one_waits(scene: Scene) -> None:
    """Until all cards are taken by the Job `first`, and the pod `waits` waits for one."""
    scene.submit_job("team-a", "first", 2 * CARDS, 1000)
    await scene.until_bound("team-a", 2 * CARDS)
    scene.submit_pod("team-a", "waits", 1000)
    await scene.until_decided(3)


def note_of_refused_release(scene: Scene) -> str:
    (told,) = {e["note"] for e in scene.full_events("team-a") if e["reason"] == "ReleaseRefused"}
    return str(told)


async def test_pods_that_are_changed_and_checked_have_their_cards(scene: Scene) -> None:
    limits = {"resources": {"limits": {"cpu": "?*", "memory": "?*"}}}
    await apply(
        scene, defaults(), tolerates(), requires("limits", {"spec": {"containers": [limits]}})
    )
    scene.cluster.kubectl("label", "nodes", "--all", "kubernetes.io/os=linux", "--overwrite")
    await scene.until(lambda: is_changed(scene), "changed pods")
    scene.cluster.kubectl("apply", "--server-side", "-f-", stdin=yaml.safe_dump_all(objects()))
    await scene.until_bound("team-a", N_PODS)
    for pod in scene.admin.get(PODS)["items"]:
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert (limits["cpu"], limits["memory"]) == ("1", "1Gi")
        assert limits[names.GPU_MILLI] in ("500", "1k")
        assert {"team", names.NVIDIA_GPU} <= {each["key"] for each in pod["spec"]["tolerations"]}


def is_changed(scene: Scene) -> bool:
    containers = [{"name": "main", "image": "example.invalid/none"}]
    body = {"metadata": {"name": "tried"}, "spec": {"containers": containers}}
    spec = scene.admin.post(f"{PODS}?dryRun=All", body)["spec"]
    keys = [each["key"] for each in spec["tolerations"]]
    return "nodeSelector" in spec and "team" in keys


async def test_release_that_a_later_validating_policy_refuses_succeeds_once_it_is_gone(
    scene: Scene,
) -> None:
    await until_one_waits(scene)
    await apply(scene, requires_owner())
    await scene.until(lambda: "label owner is required" in refusal(scene), "the policy")
    scene.cluster.kubectl("delete", "job", "first", "-n", "team-a")
    await scene.until_told("team-a", "ReleaseRefused", "waits")
    assert "Policy require-owner failed: label owner is required" in note_of_refused_release(scene)
    scene.cluster.kubectl("delete", *path_of(requires_owner()))
    await scene.until_bound("team-a", 1)


async def test_pod_that_waited_before_cluster_policies_is_released(scene: Scene) -> None:
    await until_one_waits(scene)
    label = {"patchStrategicMerge": {"metadata": {"labels": {"team": "a"}}}}
    await apply(
        scene,
        cluster_policy("labels", {"mutate": label}),
        requires("owner", {"metadata": {"labels": {"owner": "?*"}}}),
    )
    await scene.until(lambda: "owner is required" in refusal(scene), "the policy")
    scene.cluster.kubectl("delete", "job", "first", "-n", "team-a")
    await scene.until_bound("team-a", 1)
    assert scene.admin.get(f"{PODS}/waits")["metadata"]["labels"]["team"] == "a"


async def test_pod_waits_with_the_reason_while_kyverno_is_away(
    scene: Scene, kyverno: Kyverno
) -> None:
    await until_one_waits(scene)
    await apply(scene, requires_owner())
    await scene.until(lambda: "label owner is required" in refusal(scene), "the policy")
    kyverno.kill()
    scene.cluster.kubectl("delete", "job", "first", "-n", "team-a")
    await scene.until_told("team-a", "ReleaseRefused", "waits")
    assert "failed calling webhook" in note_of_refused_release(scene)
    scene.cluster.kubectl("delete", *path_of(requires_owner()))
    await asyncio.to_thread(kyverno.start)
    await scene.until_bound("team-a", 1)


@pytest.mark.parametrize(
    "policy",
    [
        requires("owner", {"metadata": {"labels": {"owner": "?*"}}}, kind="*"),
        requires_owner(groups="*", resources="*"),
    ],
    ids=lambda policy: str(policy["kind"]),
)
async def test_rule_on_all_kinds_does_not_reach_what_only_ballast_writes(
    scene: Scene, policy: Policy
) -> None:
    await apply(scene, policy)
    await scene.until(lambda: "owner is required" in refusal(scene), "the policy")
    labels = {"owner": "me", names.LABEL_POD_GROUP: "gang"}
    pod = {"labels": labels, "annotations": {names.ANNOTATION_MIN_MEMBER: "2"}}
    for name in ("one", "two"):
        scene.submit_pod("team-a", name, 1000, **pod)
    await scene.until_bound("team-a", 2)
    await scene.until(
        lambda: scene.get("namespaces/team-a/gpupodgroups")["items"] != [], "Ballast's own group"
    )
