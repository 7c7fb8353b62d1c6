"""Queues in use cannot be deleted by accident: the shipped policy on a real API server."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from extender.api.schema import MAX_LABEL_VALUE
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.installation import MANIFESTS
from tests.support.workloads import API, department, project

pytestmark = pytest.mark.controlplane

IN_FORCE_S = 90.0
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ALLOW = "ballast.dev/allow-deletion=true"


@pytest.fixture(scope="module")
def queues(control_plane: ControlPlane) -> Iterator[Api]:
    """The policies in force, over department `research` and project `vision`."""
    control_plane.reset()
    api = Api(control_plane, "default")
    folder = str(MANIFESTS / "policies")
    api.kubectl("apply", "--server-side", "--warnings-as-errors", "-k", folder)
    admin = control_plane.admin
    admin.post(f"{API}/gpudepartments", department("research", 8))
    admin.post(f"{API}/gpudepartments", department("empty", 8))
    for name in ("default", "a100"):
        admin.post(f"{API}/gpunodepools", node_pool(name))
    admin.post(f"{API}/gpuprojects", project("vision", "research", "team-a", 8))
    wait_for(
        lambda: "vision" in deletion(api, "gpudepartment/research"),
        IN_FORCE_S,
        "the policy in force",
    )
    yield api
    control_plane.reset()


def node_pool(name: str) -> dict[str, Any]:
    kind = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuNodePool"}
    return kind | {"metadata": {"name": name}, "spec": {"nodeSelector": {"pool": name}}}


def deletion(api: Api, *what: str) -> str:
    """The words with which the API server refuses to delete it; empty when it does not."""
    try:
        api.kubectl("delete", "--dry-run=server", *what)
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""


def test_definitions_are_not_deleted_while_ballast_is_installed(queues: Api) -> None:
    """Their deletion would delete the objects past the policies that guard these."""
    said = deletion(queues, "crd/gpunodepools.ballast.dev")
    assert "deleting gpunodepools.ballast.dev deletes every object of the kind" in said
    assert "ballast.dev/allow-deletion" in said
    names = {"plural": "as", "kind": "A"}
    other: dict[str, Any] = {"group": "example.com", "scope": "Cluster", "names": names}
    schema = {"openAPIV3Schema": {"type": "object"}}
    other["versions"] = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    body = {"metadata": {"name": "as.example.com"}, "spec": other}
    queues.control_plane.admin.post(DEFINITIONS, body)
    assert deletion(queues, "crd/as.example.com") == ""


def test_department_with_projects_is_not_deleted_by_accident(queues: Api) -> None:
    said = deletion(queues, "gpudepartment/research")
    assert "gpuproject vision belongs to department research" in said
    assert "ballast.dev/allow-deletion" in said
    assert deletion(queues, "gpudepartment/empty") == ""


def test_node_pool_with_figures_is_not_deleted_by_accident(queues: Api) -> None:
    assert deletion(queues, "gpunodepool/a100") == ""
    body = project("speech", "research", "team-c", 1)
    body["spec"] |= {"nodePools": [{"name": "a100", "gpu": {"quota": 1}}]}
    queues.control_plane.admin.post(f"{API}/gpuprojects", body)
    named = "gpuproject speech names node pool a100"
    wait_for(lambda: named in deletion(queues, "gpunodepool/a100"), IN_FORCE_S, named)
    assert deletion(queues, "gpunodepool/default") == ""
    queues.kubectl("annotate", "gpunodepool", "a100", ALLOW)
    assert deletion(queues, "gpunodepool/a100") == ""


def test_project_with_pods_is_not_deleted_by_accident(queues: Api) -> None:
    assert deletion(queues, "gpuproject/vision") == ""
    status = '{"status": {"gpu": {"runningPods": 2, "pendingPods": 1}}}'
    patch = ("patch", "gpuproject", "vision", "--type=merge", "-p", status)
    queues.kubectl(*patch, "--subresource=status")
    said = deletion(queues, "gpuproject/vision")
    assert "gpuproject vision has 2 running and 1 waiting pods" in said
    queues.kubectl("annotate", "gpuproject", "vision", ALLOW)
    assert deletion(queues, "gpuproject/vision") == ""


def test_department_goes_once_its_projects_have_gone(queues: Api) -> None:
    admin = queues.control_plane.admin
    admin.post(f"{API}/gpudepartments", department("closing", 8))
    admin.post(f"{API}/gpuprojects", project("left", "closing", "team-b", 1))
    wait_for(
        lambda: "left" in deletion(queues, "gpudepartment/closing"), IN_FORCE_S, "a department held"
    )
    queues.kubectl("delete", "gpuproject", "left")
    wait_for(
        lambda: deletion(queues, "gpudepartment/closing") == "", IN_FORCE_S, "a department let go"
    )


@pytest.mark.parametrize("quota", [4, 2.5, "2.5", 4.0, 0, "0.125", 100000])
def test_quota_is_a_number_or_a_text(queues: Api, quota: object) -> None:
    assert creation(queues, {"gpu": {"quota": quota, "limit": quota}}) == ""


@pytest.mark.parametrize(
    ("quota", "shown"),
    [
        *((-1, "-1"), ("-1", '"-1"'), (2.0005, "2.0005"), ("2.5555", '"2.5555"'), ("2,5", '"2,5"')),
        *(("4 GPUs", '"4 GPUs"'), ("4Gi", '"4Gi"'), ("0x1", '"0x1"'), (1e6, "1000000")),
        *((" 1", '" 1"'), ("1\n", r'"1\n"'), ("\u0665", '"\u0665"'), ("", '""'), (True, "true")),
        *(("4" * 60, f'"{"4" * 40}..."'), ([2], "a list or an object"), ({"a": 1}, "a list or an")),
    ],
)
def test_quota_that_is_no_number_of_gpus_is_refused_with_what_is_accepted(
    queues: Api, quota: object, shown: str
) -> None:
    said = creation(queues, {"gpu": {"quota": 4, "limit": quota}})
    assert f"spec.nodePools, pool default: gpu.limit is {shown}" in said
    assert "which is not a number of GPUs below 1000000 with at most three decimals" in said
    assert "such as 4 or 2.5; leave limit out where there is none" in said
    assert "^" not in said


@pytest.mark.parametrize("amount", ["500m", 32, 1.5, "128Gi", "1e3"])
def test_quota_of_cpu_is_a_quantity(queues: Api, amount: object) -> None:
    assert creation(queues, {"cpu": {"quota": amount}, "memory": {"limit": amount}}) == ""


@pytest.mark.parametrize("amount", [-1, "8 Gi", "1Kib", "lots", [1], "9" * 40])
def test_quota_that_is_no_quantity_is_refused_with_what_is_accepted(
    queues: Api, amount: object
) -> None:
    said = creation(queues, {"memory": {"quota": amount}})
    assert "pool default: memory.quota is " in said
    assert "which is not a Kubernetes quantity, such as" in said
    assert "^" not in said


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"gpu": {"quota": 2, "limit": "1.5"}}, "gpu.limit is 1.5, which is below the quota of 2"),
        (
            {"memory": {"quota": "2Gi", "limit": "2000Mi"}},
            "memory.limit is 2000Mi, which is below the quota of 2Gi",
        ),
        (
            {"cpu": {"quota": 1.5, "limit": "1499m"}},
            "cpu.limit is 1499m, which is below the quota of 1.5",
        ),
    ],
)
def test_limit_below_the_quota_is_refused(queues: Api, figures: dict[str, Any], said: str) -> None:
    assert f"spec.nodePools, pool default: {said}" in creation(queues, figures)


def creation(api: Api, figures: dict[str, Any]) -> str:
    """The words with which the API server refuses a project of these figures, else nothing."""
    body = project("figures", "research", "team-d", 0)
    body["spec"] |= {"nodePools": [{"name": "default"} | figures]}
    try:
        api.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""


@pytest.mark.parametrize("plural", ["gpudepartments", "gpuprojects", "gpunodepools"])
def test_names_that_are_label_values_elsewhere_have_at_most_63_characters(
    queues: Api, plural: str
) -> None:
    """Pods and GpuNodes have these names as labels, so no pod of a longer one could be written."""
    admin = queues.control_plane.admin
    body = {
        "gpudepartments": lambda name: department(name, 1),
        "gpuprojects": lambda name: project(name, "research", f"ns-{len(name)}", 1),
        "gpunodepools": node_pool,
    }[plural]
    admin.post(f"{API}/{plural}", body("n" * MAX_LABEL_VALUE))
    with pytest.raises(ApiRefusedError, match="name must have at most 63 characters"):
        admin.post(f"{API}/{plural}", body("n" * (MAX_LABEL_VALUE + 1)))
    with pytest.raises(ApiRefusedError, match=r"spec\.department: Too long"):
        admin.post(f"{API}/gpuprojects", project("p", "d" * (MAX_LABEL_VALUE + 1), "ns", 1))


@pytest.mark.parametrize("named", ["R&D", "Research", "research-", "a..b", "a b"])
def test_department_that_can_have_no_object_is_refused(queues: Api, named: str) -> None:
    """Pods have it as a label value, so none of the project's pods could be written."""
    body = project("p", named, "ns", 1)
    with pytest.raises(ApiRefusedError, match="department must be the name of a GpuDepartment"):
        queues.control_plane.admin.post(f"{API}/gpuprojects", body)
