"""Pods that ask for cards, or for a share of one, by ResourceClaims on a node with a DRA driver."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extender.api.names import LABEL_MANAGED
from tests.e2e import workloads
from tests.e2e.conftest import IMAGE, Installed
from tests.e2e.site import Site
from tests.e2e.workloads import DEPARTMENT, VISION
from tests.support import device_cards, dra
from tests.support.node import NodeOptions, RealNode
from tests.support.node.settings import KUBELET_KUBECONFIG

NODE = "with-driver"
N_CARDS = 4
SEEN_S = 60.0
#: Says which devices it has, and stays.
LOOK = """
import json, os, time
given = [v for k, v in os.environ.items() if k.startswith("GPU_DEVICE_") and v[:4] == "gpu-"]
print(json.dumps(sorted(given)))
time.sleep(3600)
"""


@contextmanager
def _with_driver(installed: Installed, *policy: dict[str, Any]) -> Iterator[Site]:
    """The installed cluster with a node whose cards the example driver publishes."""
    site = installed.site
    if site.plane is None:
        pytest.skip("nodes of a given cluster are not ours to add")
    if not dra.PROGRAMS.has():
        pytest.skip("the DRA example driver is not built: make dra-driver")
    if policy:
        site.apply(*policy)
    with RealNode(site.plane, NodeOptions(NODE, ix=1)) as node:
        node.import_image(IMAGE)
        flags = dra.driver_flags(NODE, KUBELET_KUBECONFIG, N_CARDS)
        node.start_program(dra.PROGRAMS.path(dra.PROGRAM), *flags)
        site.apply(
            device_cards.device_class(),
            workloads.namespace(VISION),
            workloads.department(DEPARTMENT, N_CARDS),
            workloads.project(VISION, DEPARTMENT, N_CARDS),
        )
        site.wait("cards", SEEN_S, lambda: _n_cards(site), N_CARDS)
        # The webhook is asked about claims once the controller has labelled the namespace.
        site.wait("label", SEEN_S, lambda: _is_managed(site), True)
        yield site
        site.kubectl("delete", "pods", "-n", VISION, "--all", "--wait", "--timeout=120s")
        site.kubectl("delete", "deviceclass", device_cards.DRIVER)
    site.kubectl("delete", "node", NODE)
    for each in policy:
        site.kubectl("delete", each["kind"], each["metadata"]["name"])


@pytest.fixture
def users(installed: Installed) -> Iterator[Site]:
    """Claims get whole cards."""
    with _with_driver(installed) as site:
        yield site


@pytest.fixture
def sharers(installed: Installed) -> Iterator[Site]:
    """Claims share cards: the driver does not let them, so a policy says so in its slices."""
    with _with_driver(installed, *device_cards.sharing_policy(N_CARDS)) as site:
        yield site


def _n_cards(site: Site) -> int:
    found = [each for each in site.get("gpunodes") if each["metadata"]["name"] == NODE]
    return sum(each.get("status", {}).get("cards", 0) for each in found)


def _claiming(site: Site, name: str, template: str = "pair") -> dict[str, Any]:
    pod = device_cards.pod(name, of_template=template)
    pod["metadata"]["namespace"] = VISION
    pod["spec"]["containers"][0] |= {"image": site.image(), "command": ["python3", "-c", LOOK]}
    return pod


def test_pod_with_a_claim_runs_with_its_devices_and_gives_them_back(users: Site) -> None:
    template = device_cards.template("pair", 2)
    template["metadata"]["namespace"] = VISION
    users.apply(template)
    for name in ("first", "second"):
        users.apply(_claiming(users, name))
    users.wait("pods", SEEN_S, lambda: len(users.pods(VISION, "Running")), 2)
    seen = [_devices(users, name) for name in ("first", "second")]
    assert sorted(seen[0] + seen[1]) == [f"gpu-{ix}" for ix in range(N_CARDS)]
    users.apply(_claiming(users, "third"))
    users.kubectl("delete", "pod", "first", "-n", VISION, "--wait")
    users.wait("third", SEEN_S, lambda: "third" in users.pods(VISION, "Running"), True)
    assert _devices(users, "third") == seen[0]


def test_pods_share_a_card_by_claims_for_its_memory(sharers: Site) -> None:
    """Three of 40 GiB on cards of 80 GiB have two cards, and the ledger says which."""
    template = device_cards.share_template("half", "40Gi")
    template["metadata"]["namespace"] = VISION
    sharers.apply(template)
    pods = ("first", "second", "third")
    for name in pods:
        sharers.apply(_claiming(sharers, name, "half"))
    sharers.wait("pods", SEEN_S, lambda: len(sharers.pods(VISION, "Running")), len(pods))
    node = sharers.gpu_node(NODE)
    names = [each["device"].rpartition("/")[2] for each in node["status"]["devices"]]
    rows = {row["name"]: names[row["cards"][0]["index"]] for row in node["spec"]["rows"]}
    assert {name: _devices(sharers, name) for name in pods} == {
        name: [device] for name, device in rows.items()
    }
    assert len(set(rows.values())) == 2


def _devices(site: Site, pod: str) -> list[str]:
    """What the pod's container says of the devices that it was given."""
    found: list[str] = json.loads(site.kubectl("logs", pod, "-n", VISION))
    return found


def _is_managed(site: Site) -> bool:
    (found,) = [each for each in site.get("ns") if each["metadata"]["name"] == VISION]
    return LABEL_MANAGED in found["metadata"].get("labels", {})
