"""Every overlay and every policy on the older Kubernetes versions that the API server can emulate.

kube-apiserver 1.36 emulates back to 1.33. A policy's expressions are compiled with the functions of
the version before the emulated one, so 1.33 also shows that they compile on 1.32.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_crds, run_kubectl, wait_for
from tests.support.overlays import MANIFESTS, OVERLAYS

VERSIONS = ("1.33", "1.34", "1.35")
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


@pytest.fixture(scope="module", params=VERSIONS)
def older(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane with an API server that emulates an older version."""
    with ControlPlane(emulated=request.param) as plane:
        yield plane


@pytest.mark.controlplane
@pytest.mark.timeout(240)
def test_every_overlay_is_applied_and_the_policies_hold_on(
    older: ControlPlane, foreign_kinds: Path
) -> None:
    apply_crds(older, foreign_kinds)
    for overlay in sorted(OVERLAYS, key=lambda name: name != "crds"):
        folder = MANIFESTS / "overlays" / overlay
        run_kubectl(older, "apply", "--server-side", "--warnings-as-errors", f"-k{folder}")

    def refusal() -> str:
        try:
            run_kubectl(older, "create", "-ndefault", "--dry-run=server", "-f-", stdin=HALF)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""

    wait_for(lambda: "came without the gate" in refusal(), IN_FORCE_S, "the policy in force")


@pytest.mark.parametrize("path", sorted(MANIFESTS.rglob("*.yaml")), ids=lambda p: p.name)
def test_no_expression_needs_a_newer_cel(path: Path) -> None:
    if path.name != "install.yaml":
        assert not TOO_NEW.findall(path.read_text("utf-8"))
