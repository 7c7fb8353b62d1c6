"""Every overlay: rules for each workload, and references that exist."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from extender.api import names
from tests.support.overlays import (
    INSTALL,
    MANIFESTS,
    OVERLAYS,
    WHOLE,
    WITH_DEFINITIONS,
    Document,
    Workload,
    name_of,
    of_kind,
    rendered,
    rendered_text,
    workloads,
)

VERSION = "0.1.0"
OUR_IMAGE = f"localhost/ballast:{VERSION}"
NO_GPU = {"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]}
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
Rule = Callable[[Workload], object]


def _security(workload: Workload) -> list[Document]:
    return [each.get("securityContext", {}) for each in workload.containers]


def _runs_as_nobody(workload: Workload) -> bool:
    context = workload.pod["securityContext"]
    if workload.overlay == "openshift":  # which chooses the user, and refuses a fixed one
        fixed = {"runAsUser", "runAsGroup", "fsGroup"}
        return context["runAsNonRoot"] is True and not fixed & set(context)
    return context["runAsNonRoot"] is True and context["runAsUser"] == 65532


def _has_only_safe_volumes(workload: Workload) -> bool:
    safe = {"configMap", "secret", "emptyDir", "projected", "downwardAPI"}
    return all(safe & set(volume) for volume in workload.pod.get("volumes", ()))


#: What others made is what they made when we looked; ours is built from the tree, by its users too.
PINNED = r"[a-z0-9./-]+:v\d+\.\d+\.\d+@sha256:[0-9a-f]{64}"


def _image_is_pinned(image: str) -> bool:
    return image == OUR_IMAGE or bool(re.fullmatch(PINNED, image))


def _spreads_over_hosts(workload: Workload) -> bool:
    constraints = workload.pod.get("topologySpreadConstraints", ())
    hosts = [each for each in constraints if each["topologyKey"] == "kubernetes.io/hostname"]
    labels = workload.document["spec"]["selector"]["matchLabels"]
    return any(each["labelSelector"]["matchLabels"] == labels for each in hosts)


#: What holds for every workload of ours.
ALL: dict[str, Rule] = {
    "seccomp is RuntimeDefault": lambda w: (
        w.pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    ),
    "the root file system is read-only": lambda w: all(
        each.get("readOnlyRootFilesystem") is True for each in _security(w)
    ),
    "images have a version": lambda w: all(
        _image_is_pinned(each["image"]) for each in w.containers
    ),
    "images are not pulled again": lambda w: all(
        each["imagePullPolicy"] == "IfNotPresent" for each in w.containers
    ),
    "whether there is a token is said": lambda w: "automountServiceAccountToken" in w.pod,
    "CPU and memory are requested, memory is limited": lambda w: all(
        {"cpu", "memory"} <= set(each["resources"]["requests"])
        and "memory" in each["resources"]["limits"]
        for each in w.containers
    ),
    "labels say part, name and version": lambda w: (
        w.template["metadata"]["labels"].items()
        >= {
            "app.kubernetes.io/part-of": "ballast",
            "app.kubernetes.io/name": "ballast",
            "app.kubernetes.io/version": VERSION,
        }.items()
    ),
    "Services are not put into the environment": lambda w: w.pod["enableServiceLinks"] is False,
    "the selector does not hold the version": lambda w: (
        set(w.document["spec"]["selector"]["matchLabels"])
        == {"app.kubernetes.io/name", "app.kubernetes.io/component"}
    ),
}
#: What holds for all but the node agent, which has to reach the node.
RESTRICTED: dict[str, Rule] = {
    "it runs as nobody": _runs_as_nobody,
    "no way up": lambda w: all(
        each.get("allowPrivilegeEscalation") is False for each in _security(w)
    ),
    "no capabilities": lambda w: all(
        each.get("capabilities") == {"drop": ["ALL"]} for each in _security(w)
    ),
    "not privileged": lambda w: not any(each.get("privileged") for each in _security(w)),
    "nothing of the host": lambda w: not {"hostNetwork", "hostPID", "hostIPC"} & set(w.pod),
    "no host ports": lambda w: (
        not any("hostPort" in port for each in w.containers for port in each.get("ports", ()))
    ),
    "no host paths": _has_only_safe_volumes,
    "not on GPU nodes": lambda w: (
        w.pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        == {"nodeSelectorTerms": [{"matchExpressions": [NO_GPU]}]}
    ),
    "our priority class": lambda w: w.pod["priorityClassName"] == "ballast-system",
    "all three probes": lambda w: all(
        probe in each for each in w.pod["containers"] for probe in PROBES
    ),
    "replicas are spread over hosts": _spreads_over_hosts,
    "the new one is ready before the old one goes": lambda w: (
        w.document["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    ),
}


JUDGED = [
    pytest.param(overlay, named, rule, id=f"{overlay}: {named}")
    for overlay in WHOLE
    for named, rule in (ALL | RESTRICTED).items()
]


@pytest.mark.parametrize(("overlay", "named", "rule"), JUDGED)
def test_workload_keeps_the_rule(overlay: str, named: str, rule: Rule) -> None:
    found = list(workloads(overlay))
    assert len(found) >= 3
    judged = [each for each in found if named in ALL or not each.is_node_agent]
    assert [each.name for each in judged if not rule(each)] == []


@pytest.mark.parametrize("overlay", WHOLE)
def test_namespace_of_ours_is_restricted_unless_it_is_the_node_agents(overlay: str) -> None:
    levels = {
        name_of(each): each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in of_kind(rendered(overlay), "Namespace")
    }
    assert levels.pop(names.SYSTEM_NAMESPACE) == "restricted"
    assert len(levels) <= 1
    agents = [each for each in workloads(overlay) if each.is_node_agent]
    assert all(each.document["kind"] == "DaemonSet" for each in agents)


@pytest.mark.parametrize("overlay", WHOLE)
def test_every_deployment_has_a_budget_that_never_stops_a_drain(overlay: str) -> None:
    budgets = {
        tuple(each["spec"]["selector"]["matchLabels"].items()): each["spec"]["maxUnavailable"]
        for each in of_kind(rendered(overlay), "PodDisruptionBudget")
    }
    deployments = of_kind(rendered(overlay), "Deployment")
    selectors = [tuple(each["spec"]["selector"]["matchLabels"].items()) for each in deployments]
    assert budgets == dict.fromkeys(selectors, 1)


@pytest.mark.parametrize("overlay", WHOLE)
def test_references_lead_to_objects_of_the_overlay(overlay: str) -> None:
    documents = rendered(overlay)
    there = {(each["kind"], name_of(each)) for each in documents}
    # Made by the programs, by cert-manager, or by the script beside the overlay.
    there |= {("Secret", "ballast-webhooks-tls"), ("Secret", "ballast-extender-tls")}
    wanted = set()
    for workload in workloads(overlay):
        wanted.add(("ServiceAccount", workload.pod["serviceAccountName"]))
        if workload.pod["priorityClassName"] != "system-node-critical":
            wanted.add(("PriorityClass", workload.pod["priorityClassName"]))
        for volume in workload.pod.get("volumes", ()):
            if "configMap" in volume:
                wanted.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                wanted.add(("Secret", volume["secret"]["secretName"]))
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for configuration in of_kind(documents, kind):
            for webhook in configuration["webhooks"]:
                wanted.add(("Service", webhook["clientConfig"]["service"]["name"]))
    for binding in of_kind(documents, "ValidatingAdmissionPolicyBinding"):
        wanted.add(("ValidatingAdmissionPolicy", binding["spec"]["policyName"]))
    assert wanted <= there


@pytest.mark.parametrize("overlay", WHOLE)
def test_accounts_of_the_overlay_are_used_and_give_no_token_by_themselves(overlay: str) -> None:
    accounts = of_kind(rendered(overlay), "ServiceAccount")
    used = {each.pod["serviceAccountName"] for each in workloads(overlay)}
    assert {name_of(each) for each in accounts} == used
    assert all(each["automountServiceAccountToken"] is False for each in accounts)
    bound = {
        subject["name"]
        for each in of_kind(rendered(overlay), "RoleBinding", "ClusterRoleBinding")
        for subject in each["subjects"]
        if subject["kind"] == "ServiceAccount"
    }
    assert bound == used


@pytest.mark.parametrize("overlay", [*WHOLE, "monitoring"])
def test_services_and_network_policies_select_pods_and_name_their_ports(overlay: str) -> None:
    base = overlay if overlay != "monitoring" else "default"
    pods = [(each.template["metadata"]["labels"], each.containers) for each in workloads(base)]
    for document in of_kind(rendered(overlay), "Service", "NetworkPolicy"):
        selector, ports = _reach(document)
        chosen = [containers for labels, containers in pods if selector.items() <= labels.items()]
        assert chosen, name_of(document)
        offered = {
            port["name"]
            for containers in chosen
            for each in containers
            for port in each.get("ports", ())
        }
        assert {each for each in ports if isinstance(each, str)} <= offered


def _reach(document: Document) -> tuple[dict[str, str], list[str | int]]:
    """Labels of the pods that it selects, and the ports at which it reaches them."""
    spec = document["spec"]
    if document["kind"] == "Service":
        return spec["selector"], [port["targetPort"] for port in spec["ports"]]
    ports = [port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]]
    return spec["podSelector"].get("matchLabels", {}), ports


@pytest.mark.parametrize("overlay", WHOLE)
def test_network_is_closed_but_for_what_is_listed(overlay: str) -> None:
    found = of_kind(rendered(overlay), "NetworkPolicy")
    closed = [each for each in found if name_of(each) == "deny-all"]
    namespaces = of_kind(rendered(overlay), "Namespace")
    assert {each["metadata"]["namespace"] for each in closed} == {
        name_of(each) for each in namespaces
    }
    for each in closed:
        assert each["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for each in found:
        if each not in closed:
            rules = [*each["spec"].get("ingress", ()), *each["spec"].get("egress", ())]
            assert rules
            assert all(rule["ports"] for rule in rules)


@pytest.mark.parametrize("overlay", WHOLE)
def test_what_stands_in_the_way_of_pods_is_deleted_first(overlay: str) -> None:
    """`kubectl delete -k` goes through the objects in this order."""
    kinds = [each["kind"] for each in rendered(overlay)]
    first = kinds.index("Namespace")
    assert set(kinds[:first]) >= {
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    }
    last = "ValidatingAdmissionPolicy"
    assert max(at for at, kind in enumerate(kinds) if kind == last) < first


def test_high_availability_has_more_than_one_of_everything_on_different_nodes() -> None:
    for workload in workloads("high-availability"):
        if workload.document["kind"] == "DaemonSet":
            continue
        assert workload.document["spec"]["replicas"] >= 2
        host, zone = workload.pod["topologySpreadConstraints"]
        assert host["whenUnsatisfiable"] == "DoNotSchedule"
        assert zone["topologyKey"] == "topology.kubernetes.io/zone"
        assert zone["labelSelector"] == host["labelSelector"]


def test_only_the_default_and_those_made_from_it_enforce_on_the_node() -> None:
    with_agent = {each for each in WHOLE if any(w.is_node_agent for w in workloads(each))}
    agents = (MANIFESTS / "base" / "gpu-shim").exists()
    assert with_agent == (set(WHOLE) - {"kind", "without-gpu-shim"} if agents else set())


def test_cert_manager_takes_the_certificate_over() -> None:
    documents = rendered("cert-manager")
    (webhooks,) = [
        w for w in workloads("cert-manager") if name_of(w.document) == "ballast-webhooks"
    ]
    (container,) = webhooks.containers
    assert not any(each.startswith("--secret") for each in container["args"])
    (certificate,) = [
        each for each in of_kind(documents, "Certificate") if name_of(each) == "ballast-webhooks"
    ]
    (volume,) = webhooks.pod["volumes"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for each in of_kind(documents, kind):
            wanted = f"{names.SYSTEM_NAMESPACE}/ballast-webhooks"
            assert each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == wanted
    rules = [rule for role in of_kind(documents, "Role", "ClusterRole") for rule in role["rules"]]
    said = {resource for rule in rules for resource in rule["resources"]}
    assert not said & {
        "secrets",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }


def test_components_go_together_on_top_of_an_overlay(tmp_path: Path) -> None:
    def path_to(part: str) -> str:
        return os.path.relpath(MANIFESTS / part, tmp_path)

    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [path_to("overlays/default")],
        "components": [path_to("components/high-availability"), path_to("components/cert-manager")],
        "images": [{"name": "localhost/ballast", "newName": "registry.example/ballast"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    found = list(yaml.load_all(rendered_text(tmp_path), Loader=yaml.CSafeLoader))
    (webhooks,) = [
        each for each in of_kind(found, "Deployment") if name_of(each) == "ballast-webhooks"
    ]
    assert webhooks["spec"]["replicas"] == 3
    (container,) = webhooks["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example/ballast:{VERSION}"
    assert of_kind(found, "Certificate")


def test_the_aliases_of_priority_classes_are_those_of_the_code_and_in_no_other_overlay() -> None:
    aliases = {name_of(each): each["value"] for each in rendered("priority-class-aliases")}
    assert aliases == {alias: names.CLASS_VALUES[alias] for alias in names.CLASS_ALIASES}
    for overlay in WHOLE:
        classes = {name_of(each) for each in of_kind(rendered(overlay), "PriorityClass")}
        assert classes == {*names.PRIORITY_CLASSES, "ballast-system"}


def test_private_queues_are_bound_to_nobody(tmp_path: Path) -> None:
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(MANIFESTS / "overlays/default", tmp_path)],
        "components": [os.path.relpath(MANIFESTS / "components/private-queues", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    found = yaml.load_all(rendered_text(tmp_path), Loader=yaml.CSafeLoader)
    assert not [
        name_of(each)
        for each in of_kind(found, "ClusterRoleBinding")
        if any(subject["kind"] == "Group" for subject in each["subjects"])
    ]


def test_existing_scheduler_brings_no_scheduler_and_none_of_its_rights() -> None:
    documents = rendered("existing-scheduler")
    images = {each["image"] for w in workloads("existing-scheduler") for each in w.containers}
    assert not any("kube-scheduler" in each for each in images)
    roles = {each["roleRef"]["name"] for each in of_kind(documents, "ClusterRoleBinding")}
    assert "ballast-extender" in roles
    assert not any(each.startswith("system:") for each in roles)


def test_checked_in_file_is_what_its_kustomization_renders() -> None:
    is_same = INSTALL.read_text("utf-8") == rendered_text(WITH_DEFINITIONS)
    assert is_same, "kubectl kustomize manifests/install > manifests/install.yaml"


def test_definitions_are_in_an_overlay_of_their_own_and_in_the_one_file() -> None:
    definitions = {name_of(each) for each in rendered("crds")}
    assert len(definitions) >= 6
    assert {each["kind"] for each in rendered("crds")} == {"CustomResourceDefinition"}
    for overlay in WHOLE:
        assert not of_kind(rendered(overlay), "CustomResourceDefinition")
    found = list(yaml.load_all(INSTALL.read_text("utf-8"), Loader=yaml.CSafeLoader))
    identify = {(each["kind"], name_of(each)) for each in (*rendered("crds"), *rendered("default"))}
    assert {(each["kind"], name_of(each)) for each in found} == identify


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_renders_each_object_once(overlay: str) -> None:
    there = [
        (each["kind"], each["metadata"].get("namespace"), name_of(each))
        for each in rendered(overlay)
    ]
    assert len(there) == len(set(there)) > 0


def test_alerts_name_metrics_that_the_programs_have() -> None:
    sources = [
        path.read_text("utf-8")
        for folder in ("extender", "webhooks", "gpu_shim")
        for path in (MANIFESTS.parent / folder).rglob("*.py")
    ]
    (rule,) = of_kind(rendered("monitoring"), "PrometheusRule")
    alerts = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    alerts = [each for each in alerts if "alert" in each]
    said = {name for each in alerts for name in re.findall(r"\bballast_\w+", each["expr"])}
    assert len(said) >= 5
    for metric in said:
        stem = re.sub(r"_(total|bucket)$", "", metric)
        # The agent puts `ballast_` before the names of its table.
        forms = [f'"{stem}"', f'"{stem}_total"', f'"{stem.removeprefix("ballast_")}":']
        assert any(form in text for form in forms for text in sources), metric


@pytest.mark.parametrize(
    "guide", ["README.md", "docs/install.md", "docs/operations.md", "docs/runbooks.md"]
)
def test_guide_names_files_that_are_there(guide: str) -> None:
    root = MANIFESTS.parent
    text = (root / guide).read_text("utf-8")
    paths = set(re.findall(r"(?<![\w./])(?:manifests|examples|docs)/[\w./-]*[\w]", text))
    assert [each for each in sorted(paths) if not (root / each).exists()] == []


def test_install_guide_has_every_overlay() -> None:
    text = (MANIFESTS.parent / "docs" / "install.md").read_text("utf-8")
    assert [each for each in OVERLAYS if f"`{each}`" not in text] == []


def test_install_guide_adds_a_resource_to_the_whole_list_of_accelerators() -> None:
    text = (MANIFESTS.parent / "docs" / "install.md").read_text("utf-8")
    patch = text[text.index("path: /spec/variables/0/expression") :]
    shown = set(re.findall(r"'([^']+)'", patch[: patch.index("```")]))
    policies = of_kind(rendered("default"), "ValidatingAdmissionPolicy")
    (policy,) = [each for each in policies if each["metadata"]["name"] == "gpu-pods.ballast.dev"]
    first = policy["spec"]["variables"][0]
    assert first["name"] == "accelerators"
    assert shown == {*re.findall(r"'([^']+)'", first["expression"]), "example.com/npu"}


def test_every_alert_has_a_paragraph_that_says_what_to_do() -> None:
    text = Path(MANIFESTS.parent / "docs" / "runbooks.md").read_text("utf-8")
    headings = {each.lower() for each in re.findall(r"^#+ (\w+)$", text, re.MULTILINE)}
    (rule,) = of_kind(rendered("monitoring"), "PrometheusRule")
    alerts = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    for alert in (each for each in alerts if "alert" in each):
        assert alert["annotations"]["runbook"].split("#")[1] in headings
        assert alert["alert"].lower() in headings
