"""The manifests agree with each other and with the code."""

import functools
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api import names
from webhooks.claims import READ as CLAIMS
from webhooks.native_groups import POD_GROUP
from webhooks.owners.table import TABLE

MANIFESTS = Path(__file__).parents[3] / "manifests"
KUSTOMIZATIONS = sorted(MANIFESTS.rglob("kustomization.yaml"))
#: Files for people and for other programs.
NOT_APPLIED = {
    "overlays/existing-scheduler/scheduler-config.yaml",
    "overlays/kind/cluster.yaml",
}
Document = dict[str, Any]


@functools.cache
def _documents() -> list[Document]:
    return [
        document
        for path in sorted(MANIFESTS.glob("base/*/*.yaml"))
        for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader)
    ]


def of_kind(*kinds: str) -> list[Document]:
    found = [document for document in _documents() if document["kind"] in kinds]
    assert found
    return found


def deployments() -> list[Document]:
    return of_kind("Deployment")


def name_of(document: Document) -> str:
    name: str = document["metadata"]["name"]
    return name


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda p: str(p.parent.relative_to(MANIFESTS)))
def test_kustomization_lists_every_file_beside_it_and_nothing_else(path: Path) -> None:
    listed = yaml.safe_load(path.read_text("utf-8"))
    generated = [f for g in listed.get("configMapGenerator", ()) for f in g["files"]]
    resources = [*listed.get("resources", ()), *listed.get("components", ())]
    assert all((path.parent / each).exists() for each in resources)
    files = {each for each in [*resources, *generated] if each.endswith(".yaml")}
    beside = {str(each.relative_to(MANIFESTS)) for each in path.parent.glob("*.yaml")}
    assert {str((path.parent / each).relative_to(MANIFESTS)) for each in files} == (
        beside - NOT_APPLIED - {str(path.relative_to(MANIFESTS))}
    )


def test_base_has_every_part_but_definitions_and_the_node_agent() -> None:
    base = yaml.safe_load((MANIFESTS / "base/kustomization.yaml").read_text("utf-8"))
    parts = {path.parent.name for path in MANIFESTS.glob("base/*/kustomization.yaml")}
    assert set(base["resources"]) == parts - {"crds", "gpu-shim"}


def test_priority_classes_are_those_of_the_code_and_one_for_our_own_pods() -> None:
    classes = {name_of(document): document["value"] for document in of_kind("PriorityClass")}
    assert classes.pop("ballast-system") == 10**9
    assert classes == names.PRIORITY_CLASSES
    assert not [each for each in of_kind("PriorityClass") if each.get("globalDefault")]


@pytest.mark.parametrize("role", of_kind("ClusterRole", "Role"), ids=name_of)
def test_rules_have_no_wildcards_and_no_way_up(role: Document) -> None:
    for rule in role["rules"]:
        said = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert "*" not in said
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
        assert not {"nodes/proxy", "pods/exec", "serviceaccounts/token"} & set(rule["resources"])
        if "secrets" in rule["resources"]:
            # One Secret of our own namespace, which can be created, and read by its name only.
            assert role["metadata"]["namespace"] == names.SYSTEM_NAMESPACE
            assert rule["verbs"] == ["create"] or len(rule["resourceNames"]) == 1


def _granted(role: str) -> set[tuple[str, str]]:
    (found,) = [each for each in of_kind("ClusterRole") if name_of(each) == role]
    return {(what, verb) for rule in found["rules"] for what in rule["resources"]
            for verb in rule["verbs"]}  # fmt: skip


def test_controller_neither_makes_nor_binds_pods() -> None:
    granted = _granted("ballast-control")
    assert ("pods/eviction", "create") in granted
    assert not granted & {("pods/binding", "create"), ("pods", "create")}


def test_extender_changes_nothing_but_bindings_and_the_ledger() -> None:
    writes = {
        each for each in _granted("ballast-extender") if each[1] not in ("get", "list", "watch")
    }
    assert writes == {("pods/binding", "create"), ("gpunodes", "patch")}


def test_webhooks_read_projects_and_owners_and_change_nothing_but_who_trusts_them() -> None:
    owners = {(kind.plural, "get") for kind in (*TABLE, POD_GROUP, *CLAIMS) if kind.plural}
    kinds = ("gpudepartments", "gpunodepools", "priorityclasses", "gpuprojects", "gputopologies")
    assert _granted("ballast-webhooks") - owners == set(product(kinds, ("list", "watch")))
    configurations = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    granted = _granted("ballast-webhooks-certificate")
    assert granted == set(product(configurations, ("get", "patch")))


def test_bindings_name_roles_and_accounts_that_exist() -> None:
    accounts = {name_of(each) for each in of_kind("ServiceAccount")}
    roles = {(each["kind"], name_of(each)) for each in of_kind("Role", "ClusterRole")}
    shipped = {
        ("ClusterRole", "system:kube-scheduler"),
        ("ClusterRole", "system:volume-scheduler"),
        ("Role", "extension-apiserver-authentication-reader"),
    }
    for binding in of_kind("RoleBinding", "ClusterRoleBinding"):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles | shipped
        bound = [each for each in binding["subjects"] if each["kind"] == "ServiceAccount"]
        assert {each["name"] for each in bound} <= accounts


def test_programs_and_people_have_roles_of_their_own() -> None:
    bindings = of_kind("RoleBinding", "ClusterRoleBinding")
    of_people = {"ballast-view", "ballast-edit", "ballast-viewer", "ballast-quota-admin"}
    for binding in bindings:
        is_for_people = {each["kind"] for each in binding["subjects"]} == {"Group"}
        assert (binding["roleRef"]["name"] in of_people) is is_for_people


@pytest.mark.parametrize("deployment", deployments(), ids=name_of)
def test_deployment_refers_to_what_exists(deployment: Document) -> None:
    spec = deployment["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] in {name_of(each) for each in of_kind("ServiceAccount")}
    assert (
        deployment["spec"]["selector"]["matchLabels"]
        == (deployment["spec"]["template"]["metadata"]["labels"])
    )
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    for container in spec["containers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
        ports = {port["name"] for port in container.get("ports", ())}
        for probe in ("livenessProbe", "readinessProbe"):
            port = container[probe]["httpGet"]["port"]
            assert isinstance(port, int) or port in ports


@pytest.mark.parametrize("deployment", deployments(), ids=name_of)
def test_deployment_meets_the_restricted_pod_security_standard(deployment: Document) -> None:
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}


def test_the_node_agent_has_one_capability_and_uses_it_only_where_that_is_asked_for() -> None:
    (agent,) = of_kind("DaemonSet")
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    (config,) = [each for each in of_kind("ConfigMap") if name_of(each) == "ballast-agent"]
    assert config["data"]["BALLAST_AGENT_RESTART_UNPROTECTED"] == "false"


def test_service_reaches_the_webhooks() -> None:
    (service,) = of_kind("Service")
    (found,) = [each for each in deployments() if name_of(each) == name_of(service)]
    assert found["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    targets = {port["targetPort"] for port in service["spec"]["ports"]}
    assert targets <= {port["name"] for port in container["ports"]}


def test_agent_keeps_off_nodes_where_a_driver_gives_out_the_cards() -> None:
    (agent,) = of_kind("DaemonSet")
    affinity = agent["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    off = {"key": names.LABEL_NODE_AGENT, "operator": "NotIn", "values": [names.NO_AGENT]}
    assert term == {"matchExpressions": [off]}


@pytest.mark.parametrize(
    "webhook",
    [each for found in of_kind("MutatingWebhookConfiguration") for each in found["webhooks"]],
    ids=lambda webhook: webhook["name"],
)
def test_dead_webhook_can_neither_stop_the_cluster_nor_slow_it_much(webhook: Document) -> None:
    if webhook["failurePolicy"] == "Fail":
        # What a claim asks for nothing but the webhook can tell: a pod with one waits for it.
        assert webhook["namespaceSelector"]["matchLabels"] == {names.LABEL_MANAGED: names.MANAGED}
        assert [each["name"] for each in webhook["matchConditions"]] == ["names-claims"]
    else:
        assert webhook["failurePolicy"] == "Ignore"
    assert webhook["timeoutSeconds"] <= 3
    assert webhook["sideEffects"] == "None"
    (expression,) = webhook["namespaceSelector"]["matchExpressions"]
    assert expression["operator"] == "NotIn"
    assert {"kube-system", names.SYSTEM_NAMESPACE} <= set(expression["values"])
    assert "objectSelector" not in webhook, "a pod's author could take it out of our sight"


def test_scheduler_is_configured_with_the_names_of_the_code() -> None:
    (config,) = of_kind("KubeSchedulerConfiguration")
    (profile,) = config["profiles"]
    (extender,) = config["extenders"]
    assert profile["schedulerName"] == names.SCHEDULER_NAME
    assert extender["managedResources"] == [{"name": names.GPU_MILLI, "ignoredByScheduler": False}]
    assert extender["nodeCacheCapable"] is True
    assert extender["ignorable"] is False
    assert extender["urlPrefix"].startswith("http://127.0.0.1:")
    assert config["leaderElection"]["resourceNamespace"] == names.SYSTEM_NAMESPACE
    assert config["leaderElection"]["resourceName"] != "kube-scheduler"


def test_lease_of_the_scheduler_is_the_one_it_may_write() -> None:
    (config,) = of_kind("KubeSchedulerConfiguration")
    (role,) = [each for each in of_kind("Role") if name_of(each) == "ballast-scheduler"]
    (named,) = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert named["resourceNames"] == [config["leaderElection"]["resourceName"]]
    assert named["verbs"] == ["get", "update"]


def test_lease_of_the_controller_is_the_one_it_may_write() -> None:
    (role,) = [each for each in of_kind("Role") if name_of(each) == "ballast-control"]
    (named,) = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert named["resourceNames"] == [names.LEASE_NAME]
