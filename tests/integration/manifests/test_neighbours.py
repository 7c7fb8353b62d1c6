"""Our kinds beside those of Kueue, Volcano and KAI: names, installing, and uninstalling.

The neighbours' definitions are empty but for their names, which are as those projects publish them.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.installation import ROOT
from tests.support.open_kinds import open_definition

pytestmark = pytest.mark.controlplane

SEEN_S: Final = 90.0
OVERLAYS: Final = ROOT / "manifests" / "overlays"
OURS: Final = "ballast.dev"


class Theirs(NamedTuple):
    """A kind of another scheduler."""

    group: str
    version: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()
    is_namespaced: bool = False

    @property
    def crd(self) -> str:
        return f"{self.plural}.{self.group}"

    def definition(self) -> dict[str, Any]:
        """A definition without fields."""
        return open_definition(
            self.group,
            self.version,
            self.kind,
            self.plural,
            short=self.short,
            is_namespaced=self.is_namespaced,
        )


NEIGHBOURS: Final = (
    Theirs("kueue.x-k8s.io", "v1beta1", "Topology", "topologies"),
    Theirs("kueue.x-k8s.io", "v1beta1", "Workload", "workloads", ("wl",), is_namespaced=True),
    Theirs("kueue.x-k8s.io", "v1beta1", "ClusterQueue", "clusterqueues", ("cq",)),
    Theirs(
        "scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", ("pg",), is_namespaced=True
    ),
    Theirs("scheduling.volcano.sh", "v1beta1", "Queue", "queues", ("q",)),
    Theirs("scheduling.run.ai", "v2", "Queue", "queues"),
    Theirs("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", is_namespaced=True),
    Theirs("run.ai", "v2", "Project", "projects"),
)


@pytest.fixture
def neighbours(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with the others' kinds, one object of each, and then our overlay."""
    for each in NEIGHBOURS:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(each.definition()))
    try:
        for each in NEIGHBOURS:
            wait_for(partial(_make, cluster, each), SEEN_S, f"an object of {each.crd}")
        for overlay in ("crds", "default"):
            cluster.kubectl("apply", "--server-side", f"-k{OVERLAYS / overlay}")
        yield cluster
    finally:
        cluster.kubectl("delete", "crd", "--ignore-not-found", *(each.crd for each in NEIGHBOURS))
        cluster.kubectl("delete", "--ignore-not-found", f"-k{OVERLAYS / 'default'}")
        cluster.control_plane.reset()


def test_names_are_of_one_kind_each_and_deleting_our_overlay_leaves_theirs_alone(
    neighbours: Cluster,
) -> None:
    """In one test, since installing and uninstalling take 20 seconds."""
    expect_names_of_one_kind(neighbours)
    expect_theirs_to_be_theirs(neighbours)
    before = _versions(neighbours)
    assert len(before) == len(NEIGHBOURS)
    neighbours.kubectl("delete", f"-k{OVERLAYS / 'default'}")
    assert _versions(neighbours) == before
    for each in NEIGHBOURS:
        neighbours.kubectl("get", "crd", each.crd)


def expect_names_of_one_kind(neighbours: Cluster) -> None:
    """No name or short name of ours is another kind's, too."""
    found = neighbours.kubectl("api-resources", "--cached=false", "--no-headers", "-o", "wide")
    taken: dict[str, list[str]] = {}
    for line in found.splitlines():
        words = line.split()
        version = next(ix for ix, word in enumerate(words) if word in ("true", "false")) - 1
        names = [words[0], *(words[1].split(",") if version == 2 else ())]
        for name in names:
            taken.setdefault(name, []).append(words[version])
    ours = {name for name, groups in taken.items() if any(g.startswith(OURS) for g in groups)}
    assert len(ours) >= 12
    assert not {name: taken[name] for name in ours if len(taken[name]) > 1}


def expect_theirs_to_be_theirs(neighbours: Cluster) -> None:
    """Every name of theirs gets their objects, and every name of ours our kinds."""
    for each in NEIGHBOURS:
        where = ["-n", neighbours.namespace] if each.is_namespaced else []
        for name in (each.plural, each.kind.lower(), *each.short):
            said = neighbours.kubectl("get", name, *where, "-o", "name")
            # Some of theirs share names with each other; none may lead to one of ours.
            assert said.split() in [
                [f"{other.kind.lower()}.{other.group}/theirs"]
                for other in NEIGHBOURS
                if name in (other.plural, other.kind.lower(), *other.short)
            ], name
        qualified = neighbours.kubectl("get", each.crd, *where, "-o", "name")
        assert qualified.split() == [f"{each.kind.lower()}.{each.group}/theirs"]
    crds = json.loads(neighbours.kubectl("get", "crd", "-o", "json"))["items"]
    own = [crd for crd in crds if crd["spec"]["group"] == OURS]
    assert len(own) >= 6
    for crd in own:
        neighbours.kubectl("get", crd["metadata"]["name"])


def _make(cluster: Cluster, each: Theirs) -> bool:
    """Whether an object of the kind could be made."""
    path = f"/apis/{each.group}/{each.version}"
    if not cluster.control_plane.admin.has(f"{path}/{each.plural}"):
        return False
    body: dict[str, Any] = {"apiVersion": f"{each.group}/{each.version}", "kind": each.kind}
    body |= {"metadata": {"name": "theirs"}}
    where = ["-n", cluster.namespace] if each.is_namespaced else []
    cluster.kubectl("apply", *where, "-f", "-", stdin=json.dumps(body))
    return True


def _versions(cluster: Cluster) -> dict[str, str]:
    """The resource version of each of the neighbours' objects: nothing was written to them."""
    found = {}
    for each in NEIGHBOURS:
        where = ["-n", cluster.namespace] if each.is_namespaced else []
        listed = json.loads(cluster.kubectl("get", each.crd, *where, "-o", "json"))["items"]
        (item,) = listed
        found[each.crd] = item["metadata"]["resourceVersion"]
    return found
