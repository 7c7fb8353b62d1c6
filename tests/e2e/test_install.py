"""`kubectl apply`, and everything of ours is up on a real node."""

import pytest

from tests.e2e.conftest import Installed
from tests.e2e.site import SYSTEM, Site


def test_everything_is_ready_after_one_apply(installed: Installed) -> None:
    pods = installed.site.get("pods", "-n", SYSTEM)
    statuses = [each["status"].get("containerStatuses", []) for each in pods]
    assert statuses
    assert all(status["ready"] for each in statuses for status in each)


def test_our_pods_run_in_a_real_container_runtime(installed: Installed) -> None:
    if not installed.site.real_node:
        pytest.skip("the nodes of a given cluster are real anyhow")
    pods = installed.site.get("pods", "-n", SYSTEM)
    assert {each["spec"]["nodeName"] for each in pods} == {installed.site.real_node}


def test_our_pods_log_to_where_kubectl_reads(installed: Installed) -> None:
    words = installed.site.kubectl("logs", "-n", SYSTEM, "deployment/ballast-control")
    assert words


def test_no_container_of_ours_started_twice(installed: Installed) -> None:
    pods = installed.site.get("pods", "-n", SYSTEM)
    counts = [
        (each["metadata"]["name"], status["name"], status["restartCount"])
        for each in pods
        for status in each["status"]["containerStatuses"]
    ]
    assert [each for each in counts if each[2]] == []


def test_nobody_elses_pods_are_touched(installed: Installed) -> None:
    site: Site = installed.site
    site.kubectl("run", "untouched", "-n", "default", f"--image={site.image()}", "--", "true")
    try:
        made = site.get("pods", "-n", "default", "--field-selector=metadata.name=untouched")[0]
        assert made["spec"]["schedulerName"] == "default-scheduler"
        assert "schedulingGates" not in made["spec"]
    finally:
        site.kubectl("delete", "pod", "untouched", "-n", "default", "--now", "--wait=false")
