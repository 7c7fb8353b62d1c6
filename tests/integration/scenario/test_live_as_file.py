"""`ballast scenario` and the cluster decide the same: cases side by side on a real control plane.

Each case is written into etcd as it stands at its start, in a node pool of its own. Then the
controller starts, and once nothing changes any more the same tasks run and the same are gone as in
the file, whatever the node. Consolidation is left out on both sides: pods that no controller made
are not moved. So is work without GPUs, which waits at no gate of ours in a cluster. The auditor is
not there: nothing bound the pods that run at the start.
"""

import contextlib
import time
from typing import Any, Final

import pytest

from extender.scenario.model.case import Case
from tests.integration.scenario.stored import MovesError, Rest, Stored, chosen, rest_of_file
from tests.scenarios.listed import OWN, cases_in
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster
from tests.support.installation import Installation
from tests.support.sight import until

#: As many cases with evictions, and without.
N_OF_EACH: Final = 25
DONE_S: Final = 400.0


def some_cases() -> list[tuple[Case, Rest]]:
    """Cases of all files, with what the file leads to."""
    told = []
    for case in chosen(cases_in(OWN)):
        with contextlib.suppress(MovesError):
            told.append((case, rest_of_file(case)))
    evicting = [each for each in told if each[1].evicted]
    others = [each for each in told if each[1].running and not each[1].evicted]
    step = max(1, len(others) // N_OF_EACH)
    return evicting[:N_OF_EACH] + others[::step][:N_OF_EACH]


@pytest.mark.timeout(600)
async def test_cluster_comes_to_the_same_rest_as_the_file(cluster: Cluster) -> None:
    cases = some_cases()
    assert len(cases) >= 30
    plane = cluster.control_plane
    now_s = int(time.time())
    stored = [Stored.of(case, f"c{at}") for at, (case, _) in enumerate(cases)]
    for each in stored:
        each.write(plane.store, now_s)
    # On a busy machine a released pod that is not bound in 30 s would leave its place to the next,
    # and a leader that loses the Lease drops nominations, which breaks ties another way.
    installation = Installation(plane, lease_s=300.0, bind_s=300.0)
    left: dict[str, Any] = {}

    async def is_same() -> bool:
        pods = plane.admin.get("/api/v1/pods")["items"]
        left.clear()
        for each, (case, expected) in zip(stored, cases, strict=True):
            found = each.rest(pods)
            if found != expected:
                left[case.id] = _difference(found, expected)
        return not left

    try:
        installation.start()
        await until(is_same, DONE_S, lambda: (left, _events(plane)))
    finally:
        installation.stop()


def _events(plane: ControlPlane) -> list[str]:
    """What would say why a place went to other work than in the file."""
    return [
        f"{event['involvedObject'].get('namespace')}/{event['involvedObject']['name']}"
        f" {event['reason']}: {event['message']}"
        for event in plane.admin.get("/api/v1/events")["items"]
        if event["reason"] in ("FailedScheduling", "PlacementRefused", "ReleaseRefused")
    ]


def _difference(found: Rest, expected: Rest) -> str:
    return (
        f"runs {sorted(found.running - expected.running)} besides and not"
        f" {sorted(expected.running - found.running)}, evicted"
        f" {sorted(found.evicted - expected.evicted)} besides and not"
        f" {sorted(expected.evicted - found.evicted)}"
    )
