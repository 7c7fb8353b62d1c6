"""K5: evictions delayed by budget or grace period. K6: compute time above the fraction.

K11: a kubelet's mirror pods. K15: priority through a group. K20: other schedulers. K21: other
users.
"""

from collections.abc import Iterator
from typing import Any, Final

from extender.api import names
from tests.attacks.attempt import (
    CARRIERS,
    HOME,
    NODES,
    OURS,
    PODS,
    VICTIMS,
    Attempt,
    Body,
    asking,
    carried,
    create,
    half,
    pod,
)
from tests.attacks.raw_client import MERGE
from tests.attacks.stage import BOUND, HELD
from tests.attacks.threats.placing import is_elsewhere

OTHER_SCHEDULERS: Final = (
    "volcano", "kai-scheduler", "yunikorn", "runai-scheduler", "hami-scheduler", "koord-scheduler",
    "stork", "gke.io/optimize-utilization-scheduler",
)  # fmt: skip
GROUP_PATH: Final = f"{OURS}/namespaces/{HOME}/gpupodgroups"
YEAR_S: Final = 31_536_000
#: The longest grace period that the policy admits for preemptible pods, in seconds.
LONGEST_GRACE_S: Final = 3600


def graces() -> Iterator[Attempt]:
    """K5: a grace period of a year, or a budget that allows no eviction."""
    for carrier in CARRIERS:
        for grace in (3601, 86_400, YEAR_S, 2**31 - 1, 2**62):
            body = carried(carrier, "slow", terminationGracePeriodSeconds=grace)
            yield create("K5", f"{carrier} that ends within {grace} s", body, may_pass=True,
                         word="terminationGracePeriodSeconds", gained=_ends_late)  # fmt: skip
    budgets: tuple[Body, ...] = (
        {"maxUnavailable": 0}, {"minAvailable": "100%"}, {"minAvailable": 1_000_000},
    )  # fmt: skip
    for n, budget in enumerate(budgets):
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": f"mine-{n}"}, "spec": {"selector": {}, **budget}}  # fmt: skip
        yield Attempt(threat="K5", title=f"a budget of {budget}", body=body, may_pass=True,
                      path=f"/apis/policy/v1/namespaces/{HOME}/poddisruptionbudgets")  # fmt: skip


def _ends_late(stored: Body) -> str:
    grace = stored["spec"]["terminationGracePeriodSeconds"]
    is_bound_to_end = grace <= LONGEST_GRACE_S
    return "" if is_bound_to_end else f"may take {grace} s to end"


def compute() -> Iterator[Attempt]:
    """K6: a tenth of a card gives a tenth of its compute time."""
    requests = ("0.11", "0.2", "0.25", "0.5", "0.75", "0.9", "0.999", "1", "1.0")
    for fraction in ("0.1", "0.2", "0.25", "0.5", "0.75", "0.9"):
        for request in requests:
            if float(request) <= float(fraction):
                continue
            for key in ("gpu-compute-request", names.ANNOTATION_COMPUTE_REQUEST):
                text = request if key == "gpu-compute-request" else str(int(float(request) * 1000))
                body = pod("greedy", notes={"gpu-fraction": fraction, key: text})
                yield create("K6", f"{fraction} of a card, {key} {text}", body,
                             word=("gpu-compute-request", "compute request"))  # fmt: skip
    for value in ("1000", "501"):
        patch = {"metadata": {"annotations": {names.ANNOTATION_COMPUTE_REQUEST: value}}}
        for name in (BOUND, HELD):
            yield Attempt(threat="K6", title=f"{value} of the {name} pod later", method="PATCH",
                          path=f"{PODS.format(HOME)}/{name}", body=patch, media=MERGE,
                          word=("delete the pod and create it again", "only"))  # fmt: skip


def mirrors() -> Iterator[Attempt]:
    """K11: pods that a node reports with its own credentials."""
    for victim in (*VICTIMS, HOME, "default"):
        for amount in ("1", "2", "60"):
            for node in NODES[:2]:
                note = {"kubernetes.io/config.mirror": "x"}
                owner = {"apiVersion": "v1", "kind": "Node", "name": NODES[0], "uid": "u",
                         "controller": True}  # fmt: skip
                body = pod(f"mirror-{amount}-{victim}", notes=note,
                           meta={"ownerReferences": [owner]}, nodeName=node,
                           containers=[asking("nvidia.com/gpu", amount)])  # fmt: skip
                yield Attempt(
                    threat="K11", title=f"{amount} GPUs of {victim} on {node}", actor="node",
                    path=PODS.format(victim), body=body, word=("mirror", "node", "uid", "static"),
                )  # fmt: skip


def groups() -> Iterator[Attempt]:
    """K15: a group's priority class is subject to the same rules as its pods'."""
    n = 0
    for priority_class in ("inference", "ballast-inference", "vip", "system-node-critical"):
        for preemptibility in ("", "NonPreemptible"):
            for project in ("", "mallory", *VICTIMS):
                n += 1
                name = f"vip-{n}"
                spec: Body = {"minMember": 1, "priorityClassName": priority_class}
                if preemptibility:
                    spec["preemptibility"] = preemptibility
                if project:
                    spec["project"] = project
                body = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuPodGroup",
                        "metadata": {"name": name}, "spec": spec}  # fmt: skip
                words = ("priority class", "may use", "project", "accepted")
                yield Attempt(threat="K15", title=f"a group of {spec}", path=GROUP_PATH, body=body,
                              may_pass=True, word=words)  # fmt: skip
                member = half(f"in-{name}", labels={names.LABEL_POD_GROUP: name})
                yield create("K15", f"a pod in a group of {spec}", member, may_pass=True, word="")


def schedulers() -> Iterator[Attempt]:
    """K20: pods of other schedulers are not taken over silently, and do not bypass the quota."""
    for carrier in CARRIERS:
        for scheduler in OTHER_SCHEDULERS:
            body = carried(carrier, "theirs", schedulerName=scheduler)
            yield create("K20", f"{carrier} of {scheduler}", body, may_pass=True,
                         word=("schedulerName", "scheduler"), gained=is_elsewhere)  # fmt: skip


def _is_renamed(stored: Body) -> str:
    labels = stored["metadata"]["labels"]
    found = labels.get(names.LABEL_USER) or labels.get("yunikorn.apache.org/username")
    return f"counts as {found}'s" if found else ""


def users() -> Iterator[Attempt]:
    """K21: the project of a running workload cannot be changed."""
    keys = (names.LABEL_USER, "yunikorn.apache.org/username", "user", "runai/user")
    for key in keys[:2]:
        for name in (BOUND, HELD):
            for value in ("alice", "", None, "x" * 63):
                if value is None and key != names.LABEL_USER:
                    continue
                patch = {"metadata": {"labels": {key: value}}}
                yield Attempt(threat="K21", title=f"{key}={value} on the {name} pod",
                              method="PATCH", path=f"{PODS.format(HOME)}/{name}", body=patch,
                              media=MERGE, word="cannot be changed after creation",
                              may_pass=not value, gained=_is_renamed)  # fmt: skip
    for key in keys:
        given: dict[str, Any] = {"labels": {key: "alice"}}
        yield create("K21", f"{key}=alice from the start", half("user", **given), may_pass=True,
                     word="")  # fmt: skip
