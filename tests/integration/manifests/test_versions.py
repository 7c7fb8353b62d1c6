"""Every overlay and every policy on other Kubernetes versions than the one of all other tests.

kube-apiserver 1.36 emulates back to 1.33. A policy's expressions are compiled with the functions of
the version before the emulated one, so 1.33 also shows that they compile on 1.32. The next version
is built by `make next-plane`, and runs here where it is built; kube-scheduler of it, too.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.support.controlplane.binaries import find_next_binaries
from tests.support.controlplane.builder import NEXT_SOURCES, NEXT_VERSION
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, apply_crds, run_kubectl, wait_for
from tests.support.installation import install
from tests.support.overlays import MANIFESTS, OVERLAYS

OLDER = ("1.33", "1.34", "1.35")
NEXT = NEXT_VERSION.rpartition(".")[0]
IN_FORCE_S = 30.0
#: Functions that CEL has in Kubernetes 1.33 or newer only: semver, and the third version of lists.
TOO_NEW = re.compile(r"\b(semver|isSemver|flatten|distinct|slice|reverse|sortBy|range)\(")
HALF = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "half", "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"containers": [{"name": "main", "image": "example"}]},
    }
)


def next_plane() -> ControlPlane:
    """A control plane with programs of the next version; skips the test where there are none."""
    programs = find_next_binaries()
    if programs.keys() != NEXT_SOURCES.keys():
        pytest.skip(f"Kubernetes {NEXT} is not built; make next-plane builds it")
    return ControlPlane(programs=programs)


@pytest.fixture(scope="module", params=(*OLDER, NEXT))
def other(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane whose API server emulates an older version, or is of the next one."""
    version: str = request.param
    plane = next_plane() if version == NEXT else ControlPlane(emulated=version)
    with plane:
        assert plane.admin.get("/version")["emulationMinor"] == version.partition(".")[2]
        yield plane


@pytest.mark.controlplane
@pytest.mark.timeout(240)
def test_every_overlay_is_applied_and_the_policies_hold_on(
    other: ControlPlane, foreign_kinds: Path
) -> None:
    apply_crds(other, foreign_kinds)
    for overlay in sorted(OVERLAYS, key=lambda name: name != "crds"):
        folder = MANIFESTS / "overlays" / overlay
        run_kubectl(other, "apply", "--server-side", "--warnings-as-errors", f"-k{folder}")

    def refusal() -> str:
        try:
            run_kubectl(other, "create", "-ndefault", "--dry-run=server", "-f-", stdin=HALF)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""

    wait_for(lambda: "came without the gate" in refusal(), IN_FORCE_S, "the policy in force")


@pytest.mark.controlplane
async def test_kube_scheduler_of_the_next_version_binds_what_is_planned() -> None:
    with next_plane() as plane:
        install(plane)
        plane.start_kwok()
        async with Scene.open(Cluster(plane, "default", None), n_nodes=2, cards=2) as scene:
            scene.submit_job("team-a", "gang", 2, 1000)
            scene.submit_pod("team-b", "half", 500)
            scene.submit_pod("team-b", "direct", 500, gated=False)
            await scene.until_bound("team-a", 2)
            await scene.until_bound("team-b", 2)


@pytest.mark.parametrize("path", sorted(MANIFESTS.rglob("*.yaml")), ids=lambda p: p.name)
def test_no_expression_needs_a_newer_cel(path: Path) -> None:
    if path.name != "install.yaml":
        assert not TOO_NEW.findall(path.read_text("utf-8"))
