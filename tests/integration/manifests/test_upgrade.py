"""Upgrade and downgrade with work running and waiting: nothing is evicted, no row is lost, and no
object of the other version is left."""

import re
import shlex
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.integration.manifests.one_project import (
    SEEN_S,
    add_project,
    pods,
    submit,
    uids,
    wait_bound,
)
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.installation import ROOT, Installation
from tests.support.overlays import MANIFESTS

pytestmark = pytest.mark.controlplane

GUIDE = ROOT / "docs" / "install.md"
#: What version 0.0.9 has and others have not.
DROPPED = "base/policies/dropped.yaml"
PROJECTS, LEDGER = "crds/gpuprojects.yaml", "crds/gpunodes.yaml"
Schema = dict[str, Any]


@dataclass(slots=True)
class Site:
    """A cluster on which one version of ours runs."""

    cluster: Cluster
    installation: Installation
    folder: Path

    def change_to(self, version: str) -> None:
        """Apply another version's manifests, and replace the programs as a rollout does."""
        _apply(self.cluster, _version(self.folder, version))
        _delete_leftovers(self.cluster, version)
        new = self.installation.another_control(f"control-{version}")
        new.start()
        self.installation.control.end()
        self.installation.control = new
        self.installation.serve.end()
        self.installation.serve.start()

    def version(self) -> str:
        """What the definitions in the API server say of themselves."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpunodes.ballast.dev"
        labels = self.cluster.control_plane.admin.get(path)["metadata"]["labels"]
        return str(labels["app.kubernetes.io/version"])

    def policies(self) -> set[str]:
        """Names of the policies in the API server."""
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        listed = self.cluster.control_plane.admin.get(path)["items"]
        return {each["metadata"]["name"] for each in listed}

    def rows(self) -> dict[str, str]:
        """UID -> state of every row of the ledger."""
        nodes = self.cluster.control_plane.admin.get(f"{workloads.API}/gpunodes")["items"]
        return {row["uid"]: row["state"] for node in nodes for row in node["spec"]["rows"]}

    def has_settled(self, n_pods: int) -> bool:
        """Whether so many pods are bound, and exactly these have rows, which hold their cards."""
        bound, rows = uids(self.cluster, are_bound=True), self.rows()
        return len(bound) == n_pods and rows.keys() == bound and "nominated" not in rows.values()


@pytest_asyncio.fixture
async def site(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Site]:
    """The oldest version, with four cards: three are in use, and a gang of two waits."""
    _apply(cluster, _version(tmp_path, "0.0.9"))
    add_project(cluster, 4)
    cluster.add_gpu_nodes(2, 2)
    installation = Installation(cluster.control_plane, lease_s=3.0)
    site = Site(cluster, installation, tmp_path)
    try:
        installation.start()
        submit(cluster, "running", 3, 1000)
        wait_bound(cluster, 3)
        group = workloads.pod_group("gang", cluster.namespace, 2)
        path = f"{workloads.API}/namespaces/{cluster.namespace}/gpupodgroups"
        cluster.control_plane.admin.post(path, group)
        labels = {"ballast.dev/project": "vision"}
        body = workloads.job("gang", cluster.namespace, 2, 1000, group="gang", labels=labels)
        path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"
        cluster.control_plane.admin.post(path, body)
        yield site
        await audited.finish()
    finally:
        installation.stop()


def test_versions_change_under_running_and_waiting_work(site: Site) -> None:
    running, policies = uids(site.cluster, are_bound=True), site.policies()
    assert set(site.rows()) == running
    for n_more, version in enumerate(("0.2.0", "0.0.9"), start=1):
        site.change_to(version)
        assert site.version() == version
        assert policies - site.policies() == ({"dropped.ballast.dev"} if n_more == 1 else set())
        assert set(site.rows()) >= running
        submit(site.cluster, f"after-{version}", 1, 250)
        wait_for(partial(site.has_settled, 3 + n_more), SEEN_S, "the new pod and its row")
        assert running <= uids(site.cluster, are_bound=True)
    # Three that ran all the time, two that wait, two that came later.
    assert len(pods(site.cluster)) == 7


def _apply(cluster: Cluster, manifests: Path) -> None:
    """Definitions first, as the guide says."""
    for overlay in ("crds", "default"):
        cluster.kubectl("apply", "--server-side", f"-k{manifests / 'overlays' / overlay}")


def _delete_leftovers(cluster: Cluster, version: str) -> None:
    """Run the command of the guide, with this version in the place of its own."""
    text = GUIDE.read_text("utf-8")
    found = re.search(r"<!-- tested: leftovers -->\n```\nkubectl (.+)\n```", text)
    assert found
    cluster.kubectl(*shlex.split(found.group(1).replace("0.1.0", version)))


def _version(folder: Path, version: str) -> Path:
    """The manifests of another version: its label, and definitions that know more or less."""
    target = folder / version
    if target.exists():
        return target
    shutil.copytree(MANIFESTS, target)
    labels = target / "components" / "labels" / "kustomization.yaml"
    labels.write_text(labels.read_text("utf-8").replace("0.1.0", version), "utf-8")
    for name in (PROJECTS, LEDGER):
        path = target / "base" / name
        definition = yaml.safe_load(path.read_text("utf-8"))
        _change(definition, is_newer=version > "0.1.0")
        path.write_text(yaml.safe_dump(definition), "utf-8")
    if version < "0.1.0":
        _add_policy(target)
    return target


def _add_policy(manifests: Path) -> None:
    """A policy that is bound to nothing."""
    file = manifests / "base/policies/figures.yaml"
    policy = next(yaml.safe_load_all(file.read_text("utf-8")))
    policy["metadata"]["name"] = "dropped.ballast.dev"
    (manifests / DROPPED).write_text(yaml.safe_dump(policy), "utf-8")
    path = manifests / "base/policies/kustomization.yaml"
    listed = yaml.safe_load(path.read_text("utf-8"))
    listed["resources"].append(Path(DROPPED).name)
    path.write_text(yaml.safe_dump(listed), "utf-8")


def _change(definition: Schema, *, is_newer: bool) -> None:
    """A field more in the specification, or the optional ones less that nothing here uses."""
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields = spec["rows"]["items"]["properties"] if "rows" in spec else spec
    if is_newer:
        fields["futureNote"] = {"type": "string"}
    else:
        del fields["move" if "rows" in spec else "minRuntime"]
