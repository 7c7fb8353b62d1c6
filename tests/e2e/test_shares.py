"""The node agent on a real node: pods that share a card see their part of it, and no more.

The card and its driver are the tests' own (`tests/support/fakecuda`). Each pod has such a driver to
itself, so what one gets less than all of is what the agent's arbiter kept from it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import workloads
from tests.e2e.conftest import Installed
from tests.e2e.site import NODE_SYSTEM, REAL_MIB, ROOT, Site
from tests.e2e.workloads import SHARED

OVERLAY = Path(__file__).with_name("fake-cards")
PROGRAM = (ROOT / "tests" / "integration" / "gpu_shim" / "hostprogram.py").read_text()
AGENT_LABEL = "nvidia.com/gpu.present=true"
STATE = "/tmp/card"
#: Makes the state of a card, and then says what a program sees of it, and how often it ran on it
#: in each second.
CARD = f"open({STATE!r}, 'wb').write(({REAL_MIB} * MIB).to_bytes(8, 'little') + bytes(1 << 23))"
SEEN = f"{CARD}; begin(); tell(memory())"
COUNTED = f"{SEEN}\nwhile True: tell([time.monotonic(), work(1000, 1.0)])"
UNTOUCHED = "import os; print(os.path.exists('/etc/ld.so.preload'), flush=True)"
READY_S = 60.0
N_COUNTED = 15


@pytest.fixture(scope="module")
def agents_site(installed: Installed) -> Iterator[Site]:
    """The site with the agent on its real node."""
    site = installed.site
    if not site.real_node:
        pytest.skip("the driver of a given cluster is not ours to replace")
    if not site.get("daemonsets", "-n", NODE_SYSTEM):
        pytest.skip("this overlay has no node agent")
    site.kubectl("apply", "--server-side", "-k", str(OVERLAY))
    site.kubectl("label", "node", site.real_node, AGENT_LABEL)
    site.apply(
        workloads.namespace(SHARED),
        workloads.department(SHARED, 1),
        workloads.project(SHARED, SHARED, 1),
    )
    _wait_for_agent(site)
    yield site
    site.kubectl("delete", "namespace", SHARED, "--timeout=60s")
    site.kubectl("label", "node", site.real_node, AGENT_LABEL.replace("=true", "-"))


@pytest.fixture
def agent(agents_site: Site) -> Iterator[Site]:
    """The same, for one test: its pods go afterwards, so that the first card is free again."""
    yield agents_site
    agents_site.kubectl("delete", "pods", "-n", SHARED, "--all", "--timeout=60s")


def test_pods_of_one_card_see_their_memory_and_get_their_time(agent: Site) -> None:
    shares = {"quarter": "0.25", "rest": "0.75"}
    for name, share in shares.items():
        agent.apply(_pod(agent, name, share, COUNTED))

    seen = {name: _lines(agent, name, N_COUNTED + 1) for name in shares}

    quarter = REAL_MIB // 4
    assert [lines[0] for lines in seen.values()] == [[quarter] * 2, [3 * quarter] * 2]
    since = max(lines[1][0] for lines in seen.values())
    counts = {name: sum(n for at, n in lines[1:] if since <= at) for name, lines in seen.items()}
    assert 0.15 < counts["quarter"] / sum(counts.values()) < 0.35


def test_a_pod_without_our_annotation_is_not_touched(agent: Site) -> None:
    template = workloads.plain(agent.image())
    template["spec"]["containers"][0]["command"] = ["python3", "-c", UNTOUCHED]
    template["spec"] |= _placed(agent) | {"restartPolicy": "Never"}
    agent.apply(workloads.pod("plain", SHARED, template))

    assert _words(agent, "plain", 1) == ["False"]


def test_caps_hold_on_while_the_agent_is_replaced(agent: Site) -> None:
    code = f"{SEEN}; hold = [plain(3 << 30), plain(3 << 30)]; tell([each[0] for each in hold])"
    forever = f"{code}\nwhile True: time.sleep(1); tell([plain(3 << 30)[0]])"
    agent.apply(_pod(agent, "greedy", "0.5", forever))
    first = _lines(agent, "greedy", 3)

    agent.kubectl("delete", "pods", "-n", NODE_SYSTEM, "--all", "--timeout=60s")
    during = _lines(agent, "greedy", len(_words(agent, "greedy", 1)) + 3)
    _wait_for_agent(agent)

    out_of_memory = [2]
    assert first[1:3] == [[0, 0], out_of_memory]
    assert all(each == out_of_memory for each in during[2:])


def _pod(site: Site, name: str, share: str, code: str) -> workloads.Manifest:
    template = workloads.fraction(site.image(), share, site.real_node)
    container = template["spec"]["containers"][0]
    container["command"] = ["python3", "-c", PROGRAM, code]
    container["env"] = [{"name": "FAKECUDA_STATE", "value": STATE}]
    return workloads.pod(name, SHARED, template)


def _placed(site: Site) -> workloads.Manifest:
    return {"nodeSelector": {"kubernetes.io/hostname": site.real_node}}


def _words(site: Site, pod: str, n: int) -> list[str]:
    """What a pod has said, once that is so many lines."""

    def has_spoken() -> bool:
        found = site.get("pods", "-n", SHARED, f"--field-selector=metadata.name={pod}")
        if found[0]["status"]["phase"] == "Pending":
            return False
        return len(site.kubectl("logs", "-n", SHARED, pod).splitlines()) >= n

    site.wait(f"{n} lines of {pod}", READY_S, has_spoken, True)
    return site.kubectl("logs", "-n", SHARED, pod).splitlines()


def _lines(site: Site, pod: str, n: int) -> list[list[float]]:
    return [json.loads(each) for each in _words(site, pod, n)]


def _wait_for_agent(site: Site) -> None:
    """Until the node's one agent is Ready: the DaemonSet may not know yet that there is a node."""
    wanted = {"numberReady": 1, "desiredNumberScheduled": 1}

    def look() -> dict[str, int]:
        (found,) = site.get("daemonsets", "-n", NODE_SYSTEM)
        return {key: found["status"].get(key, 0) for key in wanted}

    site.wait("the agent", READY_S, look, wanted)
