"""Checks of the cluster as a whole: its version, the user's rights, and other schedulers."""

import re
from collections.abc import Iterator
from typing import Final

from extender.api.kinds import GpuNodePool
from extender.api.names import GROUP, LABEL_MANAGED, PRIORITY_CLASSES
from extender.preflight.devices import check_devices
from extender.preflight.facts import Facts
from extender.preflight.findings import PreflightFinding, State, some
from extender.preflight.webhooks import check_webhooks

#: Minor versions of Kubernetes: the oldest and the newest that were tested (docs/platforms.md).
OLDEST_MINOR: Final = 32
NEWEST_MINOR: Final = 37
#: Minor version of the kube-scheduler in the manifests, which must not be newer than the API
#: server.
SCHEDULER_MINOR: Final = 36
_VERSION: Final = re.compile(r"v?1\.([0-9]+)")
#: Other batch schedulers, by one of their API groups.
NEIGHBOURS: Final = {
    "kueue.x-k8s.io": (
        "Kueue",
        "use one queue per namespace: do not label workloads of GpuProjects with"
        " kueue.x-k8s.io/queue-name, or they pass two quotas",
    ),
    "scheduling.volcano.sh": (
        "Volcano",
        "pods of GpuProjects must not name schedulerName: volcano; name kinds in full"
        " (gpupodgroups.ballast.dev)",
    ),
    "scheduling.run.ai": (
        "KAI Scheduler or Run:ai",
        "give each node to one of the two; their queue labels are read as projects in namespaces"
        " that a GpuProject lists",
    ),
}
YUNIKORN: Final = "yunikorn"
AUTOSCALERS: Final = ("karpenter.sh",)
#: The group and version of ProvisioningRequests, which elastic node pools use to grow. Karpenter
#: serves other kinds of this group in other versions.
PROVISIONING: Final = "autoscaling.x-k8s.io/v1"


def check_cluster(facts: Facts) -> Iterator[PreflightFinding]:
    """Every finding about the cluster as a whole."""
    yield _version(facts)
    yield _rights(facts)
    yield from _neighbours(facts)
    yield from _deschedulers(facts)
    yield from _autoscalers(facts)
    yield from check_devices(facts)
    yield _priority_classes(facts)
    yield from _default_class(facts)
    yield from _admission(facts)
    yield from check_webhooks(facts)
    if facts.unread:
        found = "; ".join(facts.unread)
        yield PreflightFinding(
            "read access", State.WARN, found, "run with a login that may list these"
        )


def _version(facts: Facts) -> PreflightFinding:
    match = _VERSION.match(facts.version)
    minor = int(match[1]) if match else 0
    if minor < OLDEST_MINOR:
        advice = f"upgrade to Kubernetes 1.{OLDEST_MINOR} or newer"
        return PreflightFinding("Kubernetes version", State.FAIL, facts.version, advice)
    if minor > NEWEST_MINOR:
        advice = (
            f"Ballast ran on 1.{OLDEST_MINOR} to 1.{NEWEST_MINOR}; try it on a test cluster first"
        )
        return PreflightFinding("Kubernetes version", State.WARN, facts.version, advice)
    if minor < SCHEDULER_MINOR:
        advice = f"use a kube-scheduler image that is not newer: v1.{minor} (docs/install.md)"
        return PreflightFinding("Kubernetes version", State.OK, facts.version, advice)
    return PreflightFinding("Kubernetes version", State.OK, facts.version)


def _rights(facts: Facts) -> PreflightFinding:
    if facts.lacking:
        found = f"this login may not {', '.join(facts.lacking)}"
        return PreflightFinding(
            "rights to install", State.FAIL, found, "use an administrator's login"
        )
    return PreflightFinding("rights to install", State.OK, "all there")


def _neighbours(facts: Facts) -> Iterator[PreflightFinding]:
    there = [NEIGHBOURS[group] for group in NEIGHBOURS if group in facts.groups]
    if any(YUNIKORN in each.metadata.name for each in facts.webhooks):
        advice = "exclude the namespaces of GpuProjects from its admission controller"
        there.append(("YuniKorn", advice))
    for name, advice in there:
        yield PreflightFinding("other schedulers", State.WARN, f"{name} is installed", advice)
    if not there:
        yield PreflightFinding("other schedulers", State.OK, "none known")


def _deschedulers(facts: Facts) -> Iterator[PreflightFinding]:
    """Deschedulers by their policies, which should leave out the namespaces of projects."""
    for each in facts.descheduling:
        found = f"ConfigMap {each.metadata.key}"
        if any(LABEL_MANAGED in text for text in (each.data or {}).values()):
            yield PreflightFinding("descheduler", State.OK, f"{found} names {LABEL_MANAGED}")
        else:
            advice = (
                "it evicts pods that Ballast packs: exclude the namespaces of projects by"
                f" namespaceLabelSelector, {LABEL_MANAGED} DoesNotExist (docs/platforms.md)"
            )
            found = f"{found} has a policy that includes the namespaces of projects"
            yield PreflightFinding("descheduler", State.WARN, found, advice)


def _autoscalers(facts: Facts) -> Iterator[PreflightFinding]:
    elastic = [each for each in facts.node_pools if each.spec.elastic]
    by_request = [each.metadata.name for each in elastic if not _reads_pods(each)]
    if PROVISIONING in facts.groups:
        found = "ProvisioningRequests are served"
        advice = "GpuNodePools with spec.elastic get nodes for work within quota"
        yield PreflightFinding("node autoscaling", State.OK, found, advice)
    elif by_request:
        found = f"{some(by_request)} cannot grow: no ProvisioningRequest is served"
        advice = (
            "install Cluster Autoscaler with its CRDs and --enable-provisioning-requests, or state"
            " trigger: UnschedulablePods for an autoscaler that reads pods"
        )
        yield PreflightFinding("node autoscaling", State.FAIL, found, advice)
    if any(group in facts.groups for group in AUTOSCALERS) and not any(map(_reads_pods, elastic)):
        advice = (
            "it adds no GPU node for pods that wait in Ballast: GpuNodePools with spec.elastic and"
            " trigger: UnschedulablePods get nodes for work within quota"
        )
        yield PreflightFinding("node autoscaling", State.WARN, "Karpenter is installed", advice)


def _reads_pods(pool: GpuNodePool) -> bool:
    """Whether the pool's autoscaler reacts to pods alone."""
    return pool.spec.elastic is not None and pool.spec.elastic.trigger == "UnschedulablePods"


def _priority_classes(facts: Facts) -> PreflightFinding:
    values = {each.metadata.name: each.value for each in facts.priority_classes}
    wrong = [
        f"{name} is {values[name]}, not {value}"
        for name, value in PRIORITY_CLASSES.items()
        if values.get(name, value) != value
    ]
    if wrong:
        advice = "delete these classes: a PriorityClass cannot be changed, so apply would fail"
        return PreflightFinding("priority classes", State.FAIL, "; ".join(wrong), advice)
    return PreflightFinding("priority classes", State.OK, "no conflict")


def _default_class(facts: Facts) -> Iterator[PreflightFinding]:
    for each in facts.priority_classes:
        if each.global_default and each.metadata.name not in PRIORITY_CLASSES:
            found = (
                f"{each.metadata.name} ({each.value}); GPU pods of projects get the class of their"
                " kind instead"
            )
            outranks = each.value > min(PRIORITY_CLASSES.values())
            advice = (
                "other pods outrank GPU pods of a lower class, and may preempt them where CPU or"
                " memory is short: lower it, or list it in allowedPriorityClasses of projects that"
                " are to keep it"
            )
            yield PreflightFinding(
                "default priority",
                State.WARN if outranks else State.OK,
                found,
                advice if outranks else "",
            )


def _admission(facts: Facts) -> Iterator[PreflightFinding]:
    if GROUP not in facts.groups or facts.lacks("validatingadmissionpolicies"):
        return
    names = {each.metadata.name for each in facts.policies}
    names |= {each.metadata.name for each in facts.webhooks}
    is_known = not facts.lacks("mutatingwebhookconfigurations")
    if is_known and not any(name.startswith("ballast-") or GROUP in name for name in names):
        advice = "apply an overlay: the CRDs alone do nothing (docs/install.md)"
        yield PreflightFinding("policies", State.OK, "only Ballast's CRDs are installed", advice)
    elif "gpu-pods.ballast.dev" not in names:
        found = "Ballast is installed without the policy gpu-pods.ballast.dev"
        advice = "apply the overlay again and read what was refused"
        yield PreflightFinding("policies", State.FAIL, found, advice)
    else:
        yield PreflightFinding("policies", State.OK, "installed")
