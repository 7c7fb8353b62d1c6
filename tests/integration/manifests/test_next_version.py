"""docs/versions.md on a real API server: from v1alpha1 to v1beta1 and back, with stored objects."""

import copy
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from extender.api import crd
from tests.support import workloads
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api, wait_for

pytestmark = pytest.mark.controlplane

SEEN_S = 90.0
NAME = "gpuprojects.ballast.dev"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"
(PROJECTS,) = (each for each in crd.DEFINITIONS if f"{each.plural}.ballast.dev" == NAME)
Body = dict[str, Any]


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    control_plane.reset()
    api = Api(control_plane, "default")
    yield api
    control_plane.reset()
    # kubectl keeps on disk which versions are served, for tests after this one as well.
    wait_for(lambda: "v1beta1" not in api.kubectl("api-versions"), SEEN_S, "one version")
    api.kubectl("api-resources", "--api-group=ballast.dev")


def definition(*, stored: str, served: tuple[str, ...] = ("v1alpha1", "v1beta1")) -> Body:
    """The definition with versions of one schema, `stored` being what is written to etcd."""
    body = crd.crd(PROJECTS)
    (only,) = body["spec"]["versions"]
    body["spec"]["versions"] = [
        copy.deepcopy(only) | {"name": name, "served": True, "storage": name == stored}
        for name in served
    ]
    return body


def apply(api: Api, body: Body) -> None:
    api.kubectl("apply", "--server-side", "--force-conflicts", "-f-", stdin=json.dumps(body))


def stored_versions(api: Api) -> list[str]:
    found: list[str] = api.control_plane.admin.get(DEFINITION)["status"]["storedVersions"]
    return found


def test_next_version_is_served_then_stored_and_can_be_taken_back(api: Api) -> None:
    admin = api.control_plane.admin
    admin.post(f"{workloads.API}/gpuprojects", workloads.project("vision", "research", "a", 2))
    before = admin.get(f"{workloads.API}/gpuprojects/vision")["spec"]
    later = "/apis/ballast.dev/v1beta1/gpuprojects/vision"

    apply(api, definition(stored="v1alpha1"))
    wait_for(lambda: admin.has("/apis/ballast.dev/v1beta1/gpuprojects"), SEEN_S, "both served")
    assert admin.get(later)["spec"] == before

    apply(api, definition(stored="v1beta1"))
    wait_for(lambda: stored_versions(api) == ["v1alpha1", "v1beta1"], SEEN_S, "both stored")
    with pytest.raises(subprocess.CalledProcessError, match="storedVersions"):
        apply(api, definition(stored="v1alpha1", served=("v1alpha1",)))

    # Back: what was written meanwhile is written again, then nothing is stored as v1beta1.
    apply(api, definition(stored="v1alpha1"))
    written = api.kubectl("get", "gpuprojects.v1alpha1.ballast.dev", "-o", "json")
    api.kubectl("replace", "-f-", stdin=written)
    patch = '{"status": {"storedVersions": ["v1alpha1"]}}'
    api.kubectl("patch", "crd", NAME, "--subresource=status", "--type=merge", "-p", patch)
    apply(api, definition(stored="v1alpha1", served=("v1alpha1",)))
    wait_for(lambda: not admin.has("/apis/ballast.dev/v1beta1/gpuprojects"), SEEN_S, "one served")
    assert admin.get(f"{workloads.API}/gpuprojects/vision")["spec"] == before
