"""In the namespace of a project a pod with a GPU is Ballast's or is refused: without any webhook.

The tenant has Kubernetes' role `edit`. No program of ours runs; the label that the controller keeps
is set by hand.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.conftest import fresh_namespace
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.installation import MANIFESTS

pytestmark = pytest.mark.controlplane

IN_FORCE_S: Final = 90.0
MANAGED: Final = "ballast.dev/managed"
CONTROLLER: Final = "system:serviceaccount:ballast-system:ballast-control"
Body = dict[str, Any]


@dataclass(slots=True)
class Site:
    """A project's namespace, one of no project, and a tenant that may edit both."""

    api: Api
    tenant: str
    elsewhere: str

    def refusal(self, body: Body, *, namespace: str = "", by: str = "") -> str:
        """Why the API server refuses to create the object; empty when it does not."""
        where = f"--namespace={namespace or self.api.namespace}"
        return self.try_kubectl(
            "create", where, "--dry-run=server", "-f", "-", stdin=json.dumps(body), by=by
        )

    def try_kubectl(self, *args: str, stdin: str = "", by: str = "") -> str:
        """What kubectl said when it failed, as the tenant or `by`; empty when it did not."""
        try:
            self.api.kubectl(*args, stdin=stdin, kubeconfig=by or self.tenant)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""


@pytest.fixture(scope="module")
def site(control_plane: ControlPlane) -> Iterator[Site]:
    api = Api(control_plane, fresh_namespace(control_plane))
    elsewhere = f"{api.namespace}-elsewhere"
    control_plane.make_namespace(elsewhere)
    api.kubectl("label", "namespace", api.namespace, f"{MANAGED}=true")
    for namespace in (api.namespace, elsewhere):
        api.kubectl(
            "create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant",
            "--namespace", namespace,
        )  # fmt: skip
    api.kubectl("apply", "--server-side", "-k", str(MANIFESTS / "policies"))
    found = Site(api, control_plane.kubeconfig_for("tenant", ()), elsewhere)
    wait_for(lambda: "came without" in found.refusal(whole()), IN_FORCE_S, "the policy in force")
    try:
        yield found
    finally:
        api.kubectl("delete", "-k", str(MANIFESTS / "policies"))


def pod(**spec: Any) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod"},
        "spec": {"containers": [{"name": "main", "image": "i"}], **spec},
    }


def asking(*names: str, field: str = "limits", amount: str = "1") -> Body:
    container = {"name": "main", "image": "i", "resources": {field: dict.fromkeys(names, amount)}}
    return pod(containers=[container])


def whole() -> Body:
    return asking("nvidia.com/gpu")


def admitted(body: Body, *, milli: str = "1000") -> Body:
    """As the webhook leaves the pod."""
    body["metadata"]["labels"] = {"ballast.dev/project": "vision"}
    body["spec"] |= {
        "schedulerName": "ballast-scheduler",
        "schedulingGates": [{"name": "ballast.dev/admission"}],
    }
    if milli:
        limits = body["spec"]["containers"][0].setdefault("resources", {}).setdefault("limits", {})
        limits["ballast.dev/gpu-milli"] = milli
    return body


FOREIGN = (
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb.shared",
    "nvidia.com/mig-9g.10gb",
    "nvidia.com/gpumem",
    "nvidia.com/GA102GL_A10",
    "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "hami.io/gpu",
    "volcano.sh/vgpu-number",
    "nvshare.com/gpu",
)


@pytest.mark.parametrize("name", FOREIGN)
def test_accelerator_that_is_not_counted_is_refused(site: Site, name: str) -> None:
    said = site.refusal(asking(name))
    assert f"{name} is not a resource that Ballast counts" in said
    assert 'gpu-fraction: "0.5"' in said


@pytest.mark.parametrize("name", FOREIGN)
def test_gate_does_not_help_an_accelerator_that_is_not_counted(site: Site, name: str) -> None:
    body = asking(name, "nvidia.com/gpu")
    assert "is not a resource that Ballast counts" in site.refusal(admitted(body))


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-1g.24gb.gfx",
        "nvidia.com/mig-1g.24gb.me.all",
        "nvidia.com/mig-1c.3g.20gb",
        "ballast.dev/gpu-milli",
    ],
)
def test_gpu_without_the_gate_is_refused(site: Site, name: str) -> None:
    assert "came without the gate" in site.refusal(asking(name))


@pytest.mark.parametrize("note", ["gpu-fraction", "gpu-memory"])
def test_share_of_a_card_without_the_gate_is_refused(site: Site, note: str) -> None:
    body = pod()
    body["metadata"]["annotations"] = {note: "1"}
    assert "came without the gate" in site.refusal(body)


def test_gpu_of_an_init_container_is_refused(site: Site) -> None:
    first = asking("nvidia.com/gpu")["spec"]["containers"][0] | {"name": "first"}
    assert "came without the gate" in site.refusal(pod(initContainers=[first]))


@pytest.mark.parametrize(
    ("name", "why"),
    [("nvidia.com/mig-1g.10gb", "can't have a MIG instance"), ("nvidia.com/gpu", "")],
)
def test_mig_instance_of_a_daemon_sets_pod_is_refused(site: Site, name: str, why: str) -> None:
    body = admitted(asking(name), milli="" if why else "1000")
    body["spec"].pop("schedulingGates")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
    body["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    maker = "system:serviceaccount:kube-system:daemon-set-controller"
    kubeconfig = site.api.control_plane.kubeconfig_for(maker, ("system:masters",))
    said = site.refusal(body, by=kubeconfig)
    assert why in said
    assert bool(why) == bool(said)


@pytest.mark.parametrize("where", ["", "elsewhere"])
def test_mig_instance_of_a_shared_kind_is_refused_by_its_name(site: Site, where: str) -> None:
    body = asking("nvidia.com/mig-1g.5gb.shared")
    body["spec"]["schedulerName"] = "ballast-scheduler"
    said = site.refusal(body, namespace=site.elsewhere if where else "")
    assert "nvidia.com/mig-1g.5gb.shared is not a resource that Ballast counts" in said
    assert "gpu-fraction" in said
    assert "webhook is down" not in said


def test_pod_level_request_alone_is_looked_at(site: Site) -> None:
    said = site.refusal(pod(resources={"limits": {"amd.com/gpu": "1"}}))
    assert "amd.com/gpu" in said


def test_pod_with_claims_names_no_node_whatever_it_says_of_itself(site: Site) -> None:
    """The webhook reads nothing of such a pod, and a tenant can write the label too."""
    claims = [{"name": "gpu", "resourceClaimName": "of-another-pod"}]
    body = pod(resourceClaims=claims, nodeName="n1")
    body["metadata"]["labels"] = {"ballast.dev/project": "team-a"}
    assert "spec.nodeName is preset" in site.refusal(body)
    del body["spec"]["nodeName"]
    assert site.refusal(body) == ""


def test_claims_that_the_webhook_did_not_read_are_refused(site: Site) -> None:
    body = pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
    assert "webhook adds once it has read the claims" in site.refusal(body)
    assert site.refusal(body, namespace=site.elsewhere) == ""


def test_preset_node_is_refused_even_behind_the_gate(site: Site) -> None:
    body = whole()
    body["spec"]["nodeName"] = "n0"
    assert "spec.nodeName is preset" in site.refusal(body)


def test_big_pod_that_no_webhook_could_read_is_refused(site: Site) -> None:
    """What passed the webhook by was a pod of 1.3 MB; the rule does not look at its size."""
    body = whole()
    loud = [{"name": f"e{ix}", "value": "x" * 100_000} for ix in range(13)]
    body["spec"]["containers"][0]["env"] = loud
    assert "came without the gate" in site.refusal(body)


def test_pod_that_dresses_up_as_ours_still_needs_label_and_milli(site: Site) -> None:
    assert "without the label" in site.refusal(admitted(whole(), milli=""))
    body = admitted(whole())
    del body["metadata"]["labels"]
    assert "without the label" in site.refusal(body)


def test_other_scheduler_is_refused_with_words(site: Site) -> None:
    body = admitted(whole())
    body["spec"]["schedulerName"] = "volcano"
    assert "leave spec.schedulerName out" in site.refusal(body)


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-2g.20gb.me"])
def test_pod_as_the_webhook_leaves_it_is_created(site: Site, name: str) -> None:
    milli = "" if "mig" in name else "1000"
    assert site.refusal(admitted(asking(name), milli=milli)) == ""


@pytest.mark.parametrize(
    "body",
    [
        pod(),
        pod(schedulerName="volcano"),
        asking("nvidia.com/gpu", amount="0"),
        asking("nvidia.com/gpu.shared", amount="0"),
        asking("nvidia.com/hostdev", "rdma/rdma_shared_device_a"),
        asking("example.com/dongle"),
    ],
    ids=["plain", "of another scheduler", "no gpu", "no replica", "network cards", "a dongle"],
)
def test_pod_without_accelerator_is_left_alone(site: Site, body: Body) -> None:
    assert site.refusal(body) == ""


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu"])
def test_namespace_of_no_project_is_left_alone(site: Site, name: str) -> None:
    assert site.refusal(asking(name), namespace=site.elsewhere) == ""
    preset = asking(name)
    preset["spec"]["nodeName"] = "n0"
    assert site.refusal(preset, namespace=site.elsewhere) == ""


@pytest.mark.parametrize(("seconds", "is_refused"), [(3600, False), (3601, True)])
def test_grace_of_a_preemptible_pod_is_bounded(site: Site, seconds: int, is_refused: bool) -> None:
    body = admitted(whole())
    body["spec"]["terminationGracePeriodSeconds"] = seconds
    assert ("at most 3600" in site.refusal(body)) is is_refused
    body["metadata"]["labels"]["ballast.dev/preemptibility"] = "non-preemptible"
    assert site.refusal(body) == ""


def test_ephemeral_container_and_resize_cannot_add_a_gpu(site: Site) -> None:
    api = site.api
    where = f"--namespace={api.namespace}"
    api.kubectl("create", where, "-f", "-", stdin=json.dumps(pod()))
    more = {"limits": {"nvidia.com/gpu": "1"}}
    changes = {
        "resize": {"containers": [{"name": "main", "image": "i", "resources": more}]},
        "ephemeralcontainers": {"ephemeralContainers": [
            {"name": "debug", "image": "i", "resources": more}]},
    }  # fmt: skip
    for subresource, spec in changes.items():
        patch = json.dumps({"spec": spec})
        said = site.try_kubectl(
            "patch", "pod", "pod", where, f"--subresource={subresource}", "-p", patch,
            "--dry-run=server", by=api.kubeconfig,
        )  # fmt: skip
        assert "is invalid" in said, subresource


def test_only_the_controller_and_administrators_change_the_label(site: Site) -> None:
    api = site.api
    api.kubectl(
        "create", "clusterrole", "namespaces", "--verb=get,create,patch,update",
        "--resource=namespaces,namespaces/finalize",
    )  # fmt: skip
    for user in ("tenant", CONTROLLER):
        name = "namespaces-" + user.rsplit(":", 1)[-1]
        api.kubectl(
            "create", "clusterrolebinding", name, "--clusterrole=namespaces", f"--user={user}"
        )
    controller = api.control_plane.kubeconfig_for(CONTROLLER, ())
    label = ("label", "--dry-run=server", "namespace", api.namespace)

    def said(*change: str, by: str = "") -> str:
        return site.try_kubectl(*label, *change, by=by)

    only = "only its controller and users who may update gpuprojects"
    wait_for(lambda: "cannot get" not in said("note=1"), IN_FORCE_S, "the right to label")
    assert said("note=1") == ""
    assert only in said(f"{MANAGED}-")
    assert only in said(f"{MANAGED}=false", "--overwrite")
    fresh = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}}
    fresh["metadata"] = {"name": "fresh", "labels": {MANAGED: "false"}}
    assert only in site.refusal(fresh)
    assert said(f"{MANAGED}-", by=api.kubeconfig) == ""
    assert said(f"{MANAGED}-", by=controller) == ""
    words = said("pod-security.kubernetes.io/enforce=privileged", by=controller)
    assert "the controller writes the label ballast.dev/managed, nothing else" in words
