"""The Helm chart renders the same objects as the overlays, and can be installed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.names import SYSTEM_NAMESPACE
from manifests.release.__main__ import make_chart, read_version
from tests.support.controlplane.handles import Api
from tests.support.helm import PROGRAMS
from tests.support.overlays import kubectl, name_of, rendered

Objects = dict[tuple[str, str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = kubectl()
    if program is None:
        pytest.skip("kubectl is missing: `make controlplane` builds it")
    return make_chart(tmp_path_factory.mktemp("chart"), program, read_version())


def helm(*words: str, **environment: str) -> str:
    done = run_helm(*words, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_helm(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if not PROGRAMS.has():
        pytest.skip("helm is missing: `make helm` builds it")
    return subprocess.run(
        [PROGRAMS.path("helm"), *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_helm_finds_nothing_wrong_with_the_chart(chart: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(chart))


@pytest.mark.parametrize(
    ("values", "overlays"),
    [
        ([], ["default"]),
        (["nodeAgent.enabled=false"], ["without-gpu-shim"]),
        (["highAvailability.enabled=true"], ["high-availability"]),
        (["view.enabled=true", "monitoring.enabled=true"], ["default", "view", "monitoring"]),
        (["dispatch.enabled=true"], ["default", "dispatch"]),
        (["priorityClassAliases.enabled=true"], ["default", "priority-class-aliases"]),
    ],
    ids=lambda each: ",".join(each) or "no values",
)
def test_values_choose_what_the_overlays_hold(
    chart: Path, values: list[str], overlays: list[str]
) -> None:
    options = [word for each in values for word in ("--set", each)]
    text = helm("template", "ballast", str(chart), *options)
    made = _by_key(each for each in yaml.safe_load_all(text) if each)
    assert made == _by_key(each for overlay in overlays for each in rendered(overlay))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("--set", "nodeagent.enabled=false"), "nodeagent"),
        (("--set", "view=true"), "/view"),
        (("--set-string", "view.enabled=false"), "/view/enabled"),
        (("--set", "monitoring.enable=true"), "enable"),
        # Of a tag of digits in a file Helm would make 2.0261126e+07.
        (("--set", "image.tag=20261126"), "/image/tag"),
        (("--set", "image.tag="), "/image/tag"),
        (("--set", "scheduler.tag=v1.35.0"), "tag"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[-1],
)
def test_a_value_that_the_chart_does_not_have_is_refused_by_name(
    chart: Path, values: tuple[str, ...], named: str
) -> None:
    done = run_helm("template", "ballast", str(chart), *values)
    assert done.returncode != 0
    assert named in done.stderr


def test_the_chart_may_be_part_of_another_one(chart: Path) -> None:
    helm("template", "ballast", str(chart), "--set", "global.imageRegistry=registry.example.com")


def test_images_are_values(chart: Path) -> None:
    text = helm(
        "template",
        "ballast",
        str(chart),
        *("--set", "image.repository=registry.example.com/ballast", "--set-string", "image.tag=9"),
        *("--set", "scheduler.image=registry.example.com/kube-scheduler:v1.35.0"),
    )
    images = {
        container["image"]
        for each in yaml.safe_load_all(text)
        if each and each["kind"] in ("Deployment", "DaemonSet")
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    assert images == {
        "registry.example.com/ballast:9",
        "registry.example.com/kube-scheduler:v1.35.0",
    }
    assert "localhost/ballast" not in text


def test_definitions_are_those_of_the_overlay(chart: Path) -> None:
    shown = yaml.safe_load_all(helm("show", "crds", str(chart)))
    assert _by_key(each for each in shown if each) == _by_key(rendered("crds"))


@pytest.mark.controlplane
def test_helm_installs_the_chart_and_an_uninstall_keeps_quotas(
    api: Api, chart: Path, tmp_path: Path
) -> None:
    home = {"KUBECONFIG": api.control_plane.kubeconfig, "HELM_CACHE_HOME": str(tmp_path)}
    # The harness has applied a policy of its own before.
    taken = ("--take-ownership", "--force-conflicts")
    helm("install", "ballast", str(chart), "-n", "default", *taken, **home)
    made = json.loads(api.kubectl("get", "deployments", f"-n{SYSTEM_NAMESPACE}", "-o", "json"))
    assert {name_of(each) for each in made["items"]} >= {"ballast-control", "ballast-webhooks"}
    without = ("--set", "nodeAgent.enabled=false")
    helm("upgrade", "ballast", str(chart), "-n", "default", *without, **home)
    assert "ballast-agent" not in api.kubectl("get", "daemonsets", "-A", "-o", "name")
    helm("uninstall", "ballast", "-n", "default", **home)
    assert "ballast" not in api.kubectl("get", "deployments", "-A", "-o", "name")
    assert "gpuprojects.ballast.dev" in api.kubectl("get", "crds", "-o", "name")


def _by_key(documents: Any) -> Objects:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in documents
    }
