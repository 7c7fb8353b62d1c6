"""Which user may write which field of a pod: the shipped policies, on a real API server.

A tenant may do anything with pods of its own namespace that Kubernetes' role `edit` allows.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.conftest import fresh_namespace
from tests.support.controlplane.cluster import SYSTEM_NAMESPACE, ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.installation import MANIFESTS

pytestmark = pytest.mark.controlplane

IN_FORCE_S = 90.0
GATE = {"name": "ballast.dev/admission"}
Body = dict[str, Any]


@dataclass(slots=True)
class Tenants:
    """Policies in force, and kubeconfigs of the users of pods in one namespace."""

    api: Api
    tenant: str
    controller: str
    scheduler: str

    def create(self, body: Body, *, dry: bool = True, by: str = "") -> None:
        """Create a pod as `by`, else as the tenant; CalledProcessError when it is refused."""
        dry_run = ["--dry-run=server"] if dry else []
        self.api.kubectl(
            "create",
            "--namespace",
            self.api.namespace,
            *dry_run,
            "-f",
            "-",
            stdin=json.dumps(body),
            kubeconfig=by or self.tenant,
        )

    def patch(self, name: str, patch: Body, *, by: str = "", subresource: str = "") -> None:
        """Merge-patch a pod; CalledProcessError when it is refused."""
        of = [f"--subresource={subresource}"] if subresource else []
        self.api.kubectl(
            "patch",
            "pod",
            name,
            "--namespace",
            self.api.namespace,
            "--dry-run=server",
            "--type=merge",
            *of,
            "-p",
            json.dumps(patch),
            kubeconfig=by or self.tenant,
        )


def pod(name: str = "train", **spec: Any) -> Body:
    """A gated pod that shares a GPU, as the webhook leaves it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {"gpu-fraction": "0.5"},
            "labels": {"ballast.dev/project": "vision"},
        },
        "spec": {
            "schedulerName": "ballast-scheduler",
            "schedulingGates": [GATE],
            "containers": [{"name": "main", "image": "example.invalid/none"}],
            **spec,
        },
    }


def noted(body: Body, **notes: str) -> Body:
    body["metadata"]["annotations"] = notes
    return body


@pytest.fixture(scope="module")
def tenants(control_plane: ControlPlane) -> Iterator[Tenants]:
    api = Api(control_plane, fresh_namespace(control_plane))
    for folder in ("rbac", "priority-classes"):
        api.kubectl("apply", "--server-side", "-k", str(MANIFESTS / folder))
    api.kubectl(
        "create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant",
        "--namespace", api.namespace,
    )  # fmt: skip
    api.kubectl("apply", "--server-side", "-k", str(MANIFESTS / "policies"))
    accounts = ("ballast-control", "ballast-scheduler")
    controller, scheduler = (
        control_plane.kubeconfig_for(
            f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}",
            ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}"),
        )
        for account in accounts
    )
    found = Tenants(api, control_plane.kubeconfig_for("tenant", ()), controller, scheduler)

    def is_in_force() -> bool:
        # The API server takes policies up now and then; these may come at different times.
        preset = pod("probe", nodeName="n0", schedulingGates=[])
        planned = noted(pod("probe"), **{"gpu-fraction": "0.5", "ballast.dev/plan": "1 n0"})
        return "spec.nodeName is preset" in refusal(
            lambda: found.create(preset)
        ) and "only Ballast writes them" in refusal(lambda: found.create(planned))

    wait_for(is_in_force, IN_FORCE_S, "the policies")
    found.create(pod("held"), dry=False)
    try:
        yield found
    finally:
        for folder in ("policies", "priority-classes"):
            api.kubectl("delete", "-k", str(MANIFESTS / folder))


def refusal(act: Any) -> str:
    """The words with which the API server refuses; empty when it does not."""
    try:
        act()
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""


def in_container(**fields: Any) -> Body:
    return pod(containers=[{"name": "main", "image": "i", **fields}])


REFUSED_AT_CREATE = {
    "a node": (pod(nodeName="n0", schedulingGates=[]), "spec.nodeName is preset"),
    "another scheduler": (pod(schedulerName="mine"), "set it to ballast-scheduler"),
    "no gate": (pod(schedulingGates=[]), "no GpuProject lists this namespace"),
    "a gate of another name": (
        pod(schedulingGates=[{"name": "example.com/ours"}]),
        "came without the gate",
    ),
    "a plan": (
        noted(pod(), **{"gpu-fraction": "0.5", "ballast.dev/plan": "1 n0"}),
        "only Ballast writes them",
    ),
    "cards": (noted(pod(), **{"ballast.dev/cards": "0:1000:1"}), "only Ballast writes them"),
    "the host's processes": (pod(hostPID=True), "host's processes"),
    "the host's memory segments": (pod(hostIPC=True), "host's processes or memory"),
    "privileges": (in_container(securityContext={"privileged": True}), "may not be privileged"),
    "SYS_ADMIN": (
        in_container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        "may not be privileged",
    ),
    "all capabilities in an init container": (
        pod(initContainers=[
            {"name": "i", "image": "i", "securityContext": {"capabilities": {"add": ["ALL"]}}}]),
        "may not be privileged",
    ),
    "a path of the host": (
        pod(volumes=[{"name": "v", "hostPath": {"path": "/var/lib/kubelet"}}]),
        "may not mount paths of the host",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "word"), REFUSED_AT_CREATE.values(), ids=REFUSED_AT_CREATE)
def test_pod_that_shares_a_gpu_is_refused_with(tenants: Tenants, body: Body, word: str) -> None:
    assert word in refusal(lambda: tenants.create(body))


def labels(**pairs: str | None) -> Body:
    return {"metadata": {"labels": pairs}}


def notes(**pairs: str | None) -> Body:
    return {"metadata": {"annotations": pairs}}


REFUSED_LATER = {
    "the gate's removal": ({"spec": {"schedulingGates": []}}, "", "only Ballast removes it"),
    "a plan": (notes(**{"ballast.dev/plan": "1 n0"}), "", "only Ballast writes them"),
    "fewer refusals": (notes(**{"ballast.dev/refused": "0 0"}), "", "only Ballast writes them"),
    "a plan by status": (notes(**{"ballast.dev/plan": "1 n0"}), "status", "only Ballast writes"),
    "cards by status": (
        notes(**{"ballast.dev/cards": "0:1000:1"}),
        "status",
        "only Ballast writes",
    ),
    "a bigger share": (notes(**{"gpu-fraction": "0.9"}), "", "delete the pod and create it again"),
    "no share": (notes(**{"gpu-fraction": None}), "", "delete the pod and create it again"),
    "compute": (notes(**{"gpu-compute-limit": "1"}), "", "delete the pod and create it again"),
    "memory limit": (
        notes(**{"gpu-memory-limit": "8192"}),
        "",
        "delete the pod and create it again",
    ),
    "node pools": (notes(**{"ballast.dev/node-pools": "h100"}), "", "delete the pod and create"),
    "another project": (labels(**{"ballast.dev/project": "x"}), "", "a pod's project, kind, group"),
    "no project": (labels(**{"ballast.dev/project": None}), "", "a pod's project, kind, group"),
    "another project's alias": (labels(**{"runai/queue": "x"}), "", "a pod's project, kind, group"),
    "another user's alias": (
        labels(**{"yunikorn.apache.org/username": "x"}),
        "",
        "a pod's project, kind, group",
    ),
    "preemptibility": (labels(**{"ballast.dev/preemptibility": "non-preemptible"}), "", "a pod's"),
    "a project by status": (labels(**{"ballast.dev/project": "x"}), "status", "a pod's project"),
}


@pytest.mark.parametrize(("patch", "by_way_of", "word"), REFUSED_LATER.values(), ids=REFUSED_LATER)
def test_tenant_may_not_give_a_waiting_pod(
    tenants: Tenants, patch: Body, by_way_of: str, word: str
) -> None:
    # The role `edit` has no right to status; a user that has it still may not write this.
    by = tenants.api.kubeconfig if by_way_of else ""
    assert word in refusal(lambda: tenants.patch("held", patch, by=by, subresource=by_way_of))


def test_controller_may_write_a_plan_and_remove_the_gate(tenants: Tenants) -> None:
    release = notes(**{"ballast.dev/plan": "1 n0"}) | {"spec": {"schedulingGates": []}}
    tenants.patch("held", release, by=tenants.controller)


def test_controller_may_let_an_autoscaler_see_a_pod(tenants: Tenants) -> None:
    spec = {"schedulingGates": [], "nodeSelector": {"example.com/group": "a100"}}
    ungated = notes(**{"ballast.dev/revoked": "- 0 0"}) | {"spec": spec}
    tenants.patch("held", ungated, by=tenants.controller)


def test_controller_may_write_what_it_takes_back(tenants: Tenants) -> None:
    taken = {"ballast.dev/revoked": "n0 1 1", "ballast.dev/refused": "1 0 n0=1:9 | no free ports"}
    tenants.patch("held", notes(**taken), by=tenants.controller)


def n_left_out(tenants: Tenants) -> float:
    """Requests that the condition of the policy `reserved` has kept from its validations.

    The API server takes the time of conditions only where one of them is false.
    """
    lines = tenants.api.kubectl("get", "--raw", "/metrics").splitlines()
    name = "apiserver_admission_match_condition_evaluation_seconds_count{"
    about = 'name="reserved.ballast.dev"'
    return sum(float(each.split()[-1]) for each in lines if each.startswith(name) and about in each)


def test_only_a_change_of_what_may_be_reserved_is_validated(tenants: Tenants) -> None:
    """Every kubelet's status of every pod, and each release by the controller, goes this way."""
    before = n_left_out(tenants)
    status = {"status": {"message": "pulling"}}
    tenants.patch("held", status, by=tenants.api.kubeconfig, subresource="status")
    tenants.patch("held", {"spec": {"activeDeadlineSeconds": 60}})
    tenants.patch("held", notes(**{"ballast.dev/plan": "1 n0"}), by=tenants.controller)
    assert n_left_out(tenants) == before + 3
    tenants.patch("held", {"metadata": {"labels": {"app": "x"}}})
    assert n_left_out(tenants) == before + 3


def test_a_release_is_not_validated(tenants: Tenants) -> None:
    before = n_left_out(tenants)
    release = notes(**{"ballast.dev/plan": "1 n0"}) | {"spec": {"schedulingGates": None}}
    tenants.patch("held", release, by=tenants.controller)
    assert n_left_out(tenants) == before + 1


def test_a_new_pod_that_claims_no_decision_is_not_validated(tenants: Tenants) -> None:
    before = n_left_out(tenants)
    tenants.create(pod("new"))
    assert n_left_out(tenants) == before + 1


@pytest.mark.parametrize(
    "change",
    [
        notes(**{"example.com/note": "x"}),
        {"metadata": {"labels": {"app": "x"}}},
        {"spec": {"activeDeadlineSeconds": 60}},
    ],
    ids=["an annotation", "a label", "a deadline"],
)
def test_controller_changes_nothing_else_of_a_pod(tenants: Tenants, change: Body) -> None:
    words = refusal(lambda: tenants.patch("held", change, by=tenants.controller))
    assert "of a pod the controller removes the gate" in words


def test_no_other_pod_gets_the_priority_of_our_own(tenants: Tenants) -> None:
    words = refusal(lambda: tenants.create(pod(priorityClassName="ballast-system")))
    assert "own pods: use ballast-inference" in words


def test_tenant_may_write_what_is_its_own(tenants: Tenants) -> None:
    tenants.patch("held", {"metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}}})


@pytest.mark.parametrize("value", ["true", None])
def test_tenant_may_hold_a_waiting_pod_and_let_it_go_on(
    tenants: Tenants, value: str | None
) -> None:
    tenants.patch("held", notes(**{"ballast.dev/hold": value}))


def test_gated_pod_that_shares_a_gpu_is_made(tenants: Tenants) -> None:
    tenants.create(pod())


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"hostPID": True, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        {"nodeName": "n0"},
        {"schedulerName": "ballast-scheduler"},
        {"containers": [{"name": "main", "image": "i",
                         "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    ],
    ids=["plain", "of a node tool", "on a node", "of our scheduler", "with a whole GPU elsewhere"],
)  # fmt: skip
def test_pod_that_is_no_matter_of_ours_is_let_through(tenants: Tenants, spec: Body) -> None:
    body = pod(schedulerName="default-scheduler", schedulingGates=[])
    body["spec"] |= spec
    body["metadata"] = {"name": "other"}
    tenants.create(body)


def test_whole_gpu_of_our_scheduler_needs_the_gate(tenants: Tenants) -> None:
    body = in_container(resources={"limits": {"nvidia.com/gpu": "1"}})
    body["metadata"] = {"name": "whole"}
    tenants.create(body)
    body["spec"]["schedulingGates"] = []
    assert "came without the gate" in refusal(lambda: tenants.create(body))


def test_shares_in_milli_are_for_our_scheduler_only(tenants: Tenants) -> None:
    body = in_container(resources={"limits": {"ballast.dev/gpu-milli": "500"}})
    body["metadata"] = {"name": "milli"}
    tenants.create(body)
    body["spec"]["schedulerName"] = "default-scheduler"
    assert "set it to ballast-scheduler" in refusal(lambda: tenants.create(body))


def test_cluster_namespaces_are_left_alone(tenants: Tenants) -> None:
    body = pod(hostPID=True, schedulingGates=[])
    tenants.api.kubectl(
        "create", "-f", "-", "--namespace=kube-system", "--dry-run=server", stdin=json.dumps(body)
    )


def test_only_the_scheduler_binds_with_cards(tenants: Tenants) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "held", "annotations": {"ballast.dev/cards": "0:500:1"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"},
    }
    path = f"/api/v1/namespaces/{tenants.api.namespace}/pods/held/binding"
    words = refusal(
        lambda: tenants.api.kubectl("create", f"--raw={path}", "-f", "-", stdin=json.dumps(binding))
    )
    assert "only Ballast's extender writes one" in words


def guest(name: str = "debug", **fields: Any) -> Body:
    """An ephemeral container that is added to the pod `held`."""
    more = {"name": name, "image": "i", "env": [HIDDEN]} | fields
    return {"spec": {"ephemeralContainers": [more]}}


HIDDEN = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
REFUSED_GUESTS = {
    "privileges": (guest(securityContext={"privileged": True}), "may not be privileged"),
    "a capability": (
        guest(securityContext={"capabilities": {"add": ["sys_ptrace"]}}),
        "kubectl debug --profile=baseline",
    ),
    "all cards": (
        guest(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        "would give a container the cards of other pods",
    ),
    "what its image says": (guest(env=[]), "must not be shown cards by its image"),
}


@pytest.mark.parametrize(("patch", "word"), REFUSED_GUESTS.values(), ids=REFUSED_GUESTS)
def test_ephemeral_container_beside_a_share_is_refused_with(
    tenants: Tenants, patch: Body, word: str
) -> None:
    by = tenants.api.kubeconfig
    assert word in refusal(
        lambda: tenants.patch("held", patch, by=by, subresource="ephemeralcontainers")
    )


def test_ephemeral_container_that_sees_no_card_is_added(tenants: Tenants) -> None:
    by = tenants.api.kubeconfig
    tenants.patch("held", guest(), by=by, subresource="ephemeralcontainers")


@pytest.mark.parametrize("milli", ["500", "1500"])
def test_share_in_milli_is_guarded_like_any_other(tenants: Tenants, milli: str) -> None:
    limits = {"limits": {"ballast.dev/gpu-milli": milli}}
    body = in_container(resources=limits, securityContext={"privileged": True})
    body["metadata"] = {"name": "milli"}
    assert "may not be privileged" in refusal(lambda: tenants.create(body))


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_no_container_chooses_its_cards(tenants: Tenants, field: str) -> None:
    loud = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}
    loud["valueFrom"] = {"configMapKeyRef": {"name": "c", "key": "k"}}
    body = pod()
    body["spec"][field] = [{"name": "main", "image": "i", "env": [loud]}]
    if field == "initContainers":
        body["spec"][field][0]["name"] = "first"
    assert "would give a container the cards of other pods" in refusal(lambda: tenants.create(body))


def test_resize_gives_no_card(tenants: Tenants) -> None:
    more = {"resources": {"requests": {"ballast.dev/gpu-milli": "900"}}}
    patch = {"spec": {"containers": [{"name": "main", "image": "i"} | more]}}
    by = tenants.api.kubeconfig
    assert "Forbidden" in refusal(lambda: tenants.patch("held", patch, by=by, subresource="resize"))


def test_controller_deletes_a_pod_only_after_saying_so_on_it(tenants: Tenants) -> None:
    tenants.create(pod("victim"), dry=False)
    where = ("--namespace", tenants.api.namespace)
    delete = ("delete", "pod", "victim", *where, "--wait=false")

    def delete_it() -> None:
        tenants.api.kubectl(*delete, kubeconfig=tenants.controller)

    assert "DisruptionTarget" in refusal(delete_it)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "Reclaimed"}
    # One that is two minutes old is taken back by the disruption controller.
    condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    tenants.api.kubectl(
        "patch", "pod", "victim", *where, "--subresource=status",
        "-p", json.dumps({"status": {"conditions": [condition]}}),
    )  # fmt: skip
    delete_it()
