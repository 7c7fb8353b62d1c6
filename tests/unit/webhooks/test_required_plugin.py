"""Pods that share a card tell container runtimes that they need the node agent."""

from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from gpu_shim.agent.nri.plugin import NAME
from tests.support.admission import PodDocument, pod, request_for, usual_index
from webhooks.change import REQUIRED_PLUGINS
from webhooks.mutate import judge, read_pod
from webhooks.owners.origin import NO_OWNER
from webhooks.review import Decision

HALF = {"gpu-fraction": "0.5"}
KEY = f"{REQUIRED_PLUGINS}/pod"
AGENT = Path(__file__).parents[3] / "manifests" / "base" / "gpu-shim" / "admission.yaml"


def notes_of(built: PodDocument, plugin: str = NAME) -> dict[str, Any]:
    """The pod's annotations after admission."""
    request = request_for(built)
    found = read_pod(request)
    if isinstance(found, Decision):
        return dict(built.body["metadata"].get("annotations", {}))
    decision = judge(found, request, usual_index(), NO_OWNER, plugin)
    assert decision.is_allowed, decision.message
    built.body = jsonpatch.apply_patch(built.body, list(decision.ops))
    return dict(built.body["metadata"].get("annotations", {}))


@pytest.mark.parametrize("notes", [HALF, {"gpu-memory": "8192"}])
def test_a_pod_that_shares_a_card_needs_the_agent(notes: dict[str, str]) -> None:
    assert yaml.safe_load(notes_of(pod().noted(notes))[KEY]) == [NAME]


def test_it_is_said_once() -> None:
    built = pod().noted(HALF)
    assert notes_of(built) == notes_of(built)


@pytest.mark.parametrize("key", [REQUIRED_PLUGINS, KEY, f"{REQUIRED_PLUGINS}/container.main"])
def test_what_its_author_says_of_plugins_stays(key: str) -> None:
    said = {key: "[ theirs ]"}
    kept = notes_of(pod().noted(HALF | said))
    assert {k: v for k, v in kept.items() if k.startswith(REQUIRED_PLUGINS)} == said


@pytest.mark.parametrize(
    "built",
    [pod(), pod().asking("nvidia.com/gpu", "1"), pod().asking("nvidia.com/mig-1g.5gb", "1")],
)
def test_other_pods_need_no_agent(built: PodDocument) -> None:
    assert KEY not in notes_of(built)


def test_without_an_agent_in_the_cluster_nothing_is_said() -> None:
    assert KEY not in notes_of(pod().noted(HALF), plugin="")


def test_the_manifests_call_the_agent_what_it_calls_itself() -> None:
    assert yaml.safe_load(AGENT.read_text("utf-8"))["data"]["nri-plugin"] == NAME
