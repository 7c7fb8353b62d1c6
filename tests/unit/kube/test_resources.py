import pytest

from extender.kube.errors import RequestRefused
from extender.kube.resources import GPU_NODES, LEASES, POD_GROUPS, PODS


def test_paths_are_those_of_the_api() -> None:
    assert PODS.url() == "/api/v1/pods"
    assert PODS.url("team-a") == "/api/v1/namespaces/team-a/pods"
    assert PODS.url("team-a", "p", "binding") == "/api/v1/namespaces/team-a/pods/p/binding"
    assert GPU_NODES.url(name="n-1", subresource="status") == (
        "/apis/ballast.dev/v1alpha1/gpunodes/n-1/status"
    )
    assert LEASES.url("ns", "l") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2fb", "a b", "a\n", "", "x" * 254, "é"])
def test_names_that_would_change_the_path_are_refused(name: str) -> None:
    with pytest.raises(RequestRefused):
        PODS.url("team-a", name or "\0")


def test_a_named_object_of_a_namespaced_kind_needs_its_namespace() -> None:
    with pytest.raises(RequestRefused, match="namespace"):
        PODS.url(name="p")


def test_documents_carry_the_type_that_the_api_server_insists_on() -> None:
    document = POD_GROUPS.document({"metadata": {"name": "g"}})
    assert document == {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuPodGroup",
        "metadata": {"name": "g"},
    }
