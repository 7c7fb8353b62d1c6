"""Every overlay and every policy on other Kubernetes versions than the one of all other tests.

kube-apiserver 1.36 emulates back to 1.33. `make other-planes` builds kube-apiserver and
kube-scheduler of other releases, among them the oldest supported one and the newest; they run here
where they are built.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.support.controlplane.binaries import find_other_binaries
from tests.support.controlplane.builder import OTHER_PROGRAMS, OTHER_RELEASES
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, apply_crds, run_kubectl, wait_for
from tests.support.installation import install
from tests.support.overlays import MANIFESTS, OVERLAYS

EMULATED = ("1.33", "1.34", "1.35")
IN_FORCE_S = 90.0
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


def other_release(release: str, flags: Mapping[str, Sequence[str]] | None = None) -> ControlPlane:
    """A control plane with programs of that release; skips the test where there are none."""
    programs = find_other_binaries(release)
    if len(programs) < len(OTHER_PROGRAMS):
        pytest.skip(f"Kubernetes {release} is not built; make other-planes builds it")
    return ControlPlane(programs=programs, flags=flags)


@pytest.fixture(scope="module", params=sorted({*EMULATED, *OTHER_RELEASES}))
def other(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane of another release, or one that emulates it where it is not built."""
    version: str = request.param
    is_built = version in OTHER_RELEASES and bool(find_other_binaries(version))
    is_emulated = version in EMULATED and not is_built
    with ControlPlane(emulated=version) if is_emulated else other_release(version) as plane:
        told = plane.admin.get("/version")
        assert told.get("emulationMinor", told["minor"]) == version.partition(".")[2]
        yield plane


@pytest.mark.controlplane
def test_every_overlay_is_applied_and_the_policies_hold_on(
    other: ControlPlane, foreign_kinds: Path
) -> None:
    apply_crds(other, foreign_kinds)
    # Kueue's, for the overlay `dispatch`.
    other.make_namespace("kueue-system")
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
@pytest.mark.parametrize("release", OTHER_RELEASES)
async def test_kube_scheduler_of_another_release_binds_what_is_planned(release: str) -> None:
    with other_release(release) as plane:
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
