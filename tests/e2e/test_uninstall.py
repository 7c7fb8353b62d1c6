"""`kubectl delete -k`, and the cluster is as usable as before."""

from dataclasses import dataclass

import pytest

from tests.e2e import workloads
from tests.e2e.conftest import Installed
from tests.e2e.site import DEFINITIONS, NODE_SYSTEM, OVERLAY, SYSTEM, Site
from tests.e2e.workloads import LEFT

pytestmark = pytest.mark.timeout(300)

RUNNING_S = 120.0
WAITING = "--field-selector=spec.schedulerName=ballast-scheduler,spec.nodeName="


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """A site that Ballast was taken from while one pod ran and a gang waited."""

    site: Site
    image: str
    running: str
    n_waiting: int


@pytest.fixture(scope="module")
def uninstalled(installed: Installed) -> Uninstalled:
    """What is left behind by an uninstall in the middle of work."""
    site, image = installed.site, installed.site.image()
    n_waiting = site.n_gpus() + 1
    site.apply(workloads.namespace(LEFT), workloads.department(LEFT, 1))
    site.apply(workloads.project(LEFT, LEFT, 1))
    half = workloads.fraction(image, "0.5", site.real_node)
    site.apply(workloads.deployment("half", LEFT, 1, half))
    site.kubectl("rollout", "status", "deployment/half", "-n", LEFT, "--timeout=120s")
    (running,) = site.pods(LEFT, "Running")
    site.apply(workloads.job("waits", LEFT, n_waiting, workloads.whole(image, 1)))
    site.wait("waiting", RUNNING_S, lambda: len(site.pods(LEFT, app="waits")), n_waiting)
    site.kubectl("delete", "-k", str(OVERLAY), "--timeout=120s")
    assert f"gpuproject.ballast.dev/{LEFT}" in site.kubectl(
        "get", "gpuprojects.ballast.dev", "-o", "name"
    )
    site.kubectl("delete", "-k", str(DEFINITIONS), "--timeout=120s")
    return Uninstalled(site, image, running, n_waiting)


def test_an_uninstall_leaves_nothing_of_ours(uninstalled: Uninstalled) -> None:
    names = {each["metadata"]["name"] for each in uninstalled.site.get("namespaces")}
    assert not {SYSTEM, NODE_SYSTEM} & names
    assert "ballast" not in uninstalled.site.kubectl("get", "crd", "-o", "name")
    kinds = "clusterroles,mutatingwebhookconfigurations,validatingadmissionpolicies"
    assert "ballast" not in uninstalled.site.kubectl("get", kinds, "-o", "name")


def test_what_runs_goes_on_after_an_uninstall(uninstalled: Uninstalled) -> None:
    assert uninstalled.site.pods(LEFT, "Running") == [uninstalled.running]


def test_new_pods_run_after_an_uninstall(uninstalled: Uninstalled) -> None:
    site = uninstalled.site
    site.apply(workloads.pod("plain", LEFT, workloads.plain(uninstalled.image)))
    site.kubectl("wait", "pod/plain", "-n", LEFT, "--for=condition=Ready", "--timeout=120s")


def test_what_waited_is_listed_and_can_be_made_again(uninstalled: Uninstalled) -> None:
    site = uninstalled.site
    assert len(site.get("pods", "-n", LEFT, WAITING)) == uninstalled.n_waiting

    # A Job recreates deleted pods only after its back-off, one for each of them.
    for is_suspended in ("true", "false"):
        patch = f'{{"spec":{{"suspend":{is_suspended}}}}}'
        site.kubectl("patch", "job", "waits", "-n", LEFT, "--type=merge", "-p", patch)

    site.wait("runs", RUNNING_S, lambda: bool(site.pods(LEFT, "Running", app="waits")), True)
