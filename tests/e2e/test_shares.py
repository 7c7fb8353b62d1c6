"""The node agent on a real node: pods that share a card see their part of it, and no more.

The card and its driver are the tests' own (`tests/support/fakecuda`). Each pod has such a card to
itself, so what one gets less than all of is what the agent's arbiter kept from it. Where it matters
what the driver says, pods have the card that the agent sees too, in a volume.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import escapes, workloads
from tests.e2e.conftest import Installed
from tests.e2e.site import AGENT_LABEL, CARD_FOLDER, NODE_SYSTEM, REAL_MIB, ROOT, NotSeenError, Site
from tests.e2e.workloads import SHARED

OVERLAY = Path(__file__).with_name("fake-cards")
PROGRAM = (ROOT / "tests" / "integration" / "gpu_shim" / "hostprogram.py").read_text()
STATE = "/tmp/card"
#: Makes the state of a card, and then says what a program sees of it, and how often it ran on it
#: in each second.
CARD = f"open({STATE!r}, 'wb').write(({REAL_MIB} * MIB).to_bytes(8, 'little') + bytes(1 << 23))"
SEEN = f"{CARD}; begin(); tell(memory())"
COUNTED = f"{SEEN}\nwhile True: tell([time.monotonic(), work(1000, 1.0)])"
UNTOUCHED = "import os; print(os.path.exists('/etc/ld.so.preload'), flush=True)"
READY_S = 120.0
GONE_S = 120.0
N_COUNTED = 15
#: The volume with the card that the agent sees, and where pods have it.
CARD_VOLUME = "ballast-e2e-card"
INSIDE = "/card"
TAKEN_MIB = REAL_MIB // 4 + 1024
#: Takes more than a quarter of the card, and writes down when that was and what came of it.
TAKES = f"""
at = time.time()
begin()
status = plain({TAKEN_MIB} * MIB)[0]
with open("{{first}}", "w") as file:
    file.write(json.dumps([at, status]))
time.sleep(3600)
"""
ESCAPES = {
    "loader": ["python3", "-c", escapes.LOADER, PROGRAM, TAKES],
    "namespace": ["python3", "-c", escapes.NAMESPACE, PROGRAM, TAKES],
    "static": [f"{INSIDE}/static", str(TAKEN_MIB), "{first}"],
}
#: Says again and again whether it has the library.
TELLS = """
import os, time
while True:
    print(os.path.exists("/etc/ld.so.preload"), flush=True)
    time.sleep(1)
"""
POLICIES = ("Always", "OnFailure", "Never")
#: Looks of the agent in which a container that was ended once could be ended again.
N_LOOKS = 5
KILLED = 137
BEHAVES = "begin(); plain(512 * MIB)\nwhile True: tell(memory()); time.sleep(0.5)"


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
    site.kubectl("delete", "namespace", SHARED, "--timeout=120s")
    site.kubectl("label", "node", site.real_node, AGENT_LABEL.replace("=true", "-"))


@pytest.fixture
def agent(agents_site: Site) -> Iterator[Site]:
    """The same, for one test: its pods go afterwards, so that the first card is free again."""
    yield agents_site
    agents_site.kubectl("delete", "pods", "-n", SHARED, "--all", "--timeout=120s")


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

    agent.kubectl("delete", "pods", "-n", NODE_SYSTEM, "--all", "--timeout=120s")
    during = _lines(agent, "greedy", len(_words(agent, "greedy", 1)) + 3)
    _wait_for_agent(agent)

    out_of_memory = [2]
    assert first[1:3] == [[0, 0], out_of_memory]
    assert all(each == out_of_memory for each in during[2:])


@pytest.fixture
def card(agent: Site) -> Iterator[str]:
    """The name of a claim by which pods have the card that the agent sees."""
    agent.offer_folder(CARD_VOLUME, SHARED, CARD_FOLDER)
    yield CARD_VOLUME
    # A volume in use is protected until a controller says otherwise, and there may be none.
    open_ = ("--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    for kind in ("persistentvolumeclaim", "persistentvolume"):
        agent.kubectl("patch", kind, CARD_VOLUME, "-n", SHARED, *open_)
        agent.kubectl("delete", kind, CARD_VOLUME, "-n", SHARED, "--wait=false")


def test_who_gets_past_the_library_is_evicted_and_others_go_on(
    agent: Site, card: str, say: Callable[[str], None]
) -> None:
    clean = ["python3", "-c", escapes.CLEAN, PROGRAM, BEHAVES]
    pods = [_with_card(_sharing(agent, "behaves", "0.25", clean), card)]
    for name, command in ESCAPES.items():
        words = [each.replace("{first}", f"{INSIDE}/{name}.first") for each in command]
        pods.append(_with_card(_sharing(agent, name, "0.25", words), card))
    agent.apply(*pods)

    ends = _watch_ends(agent, set(ESCAPES))

    for name, (deleted_s, gone_s) in ends.items():
        first_s, status = _first_use(agent, name)
        took = f"deleted after {deleted_s - first_s:.1f} s, gone after {gone_s - first_s:.1f} s"
        say(f"past the library by {name}, from its first use: {took} (bar: 10 s)")
        assert status == 0
        _wait_told(agent, name, {"GpuUnprotected", "GpuMemoryOverCap"})
    n_seen = len(_words(agent, "behaves", 1))
    quarter = REAL_MIB // 4
    assert _lines(agent, "behaves", n_seen + 2)[-1] == [quarter - 512, quarter]
    assert not {"GpuUnprotected", "GpuMemoryOverCap"} & agent.reasons(SHARED, "behaves")


@pytest.fixture
def away(agent: Site) -> Iterator[Callable[[], None]]:
    """The site without its agent; to be called to have it back, as one that restarts containers."""
    _configure(agent, EVICT="false", RESTART_UNPROTECTED="true")
    label = AGENT_LABEL.partition("=")[0]
    agent.kubectl("label", "node", agent.real_node, f"{label}-")
    agent.wait("the end of the agent", GONE_S, lambda: agent.get("pods", "-n", NODE_SYSTEM), [])

    def come_back() -> None:
        agent.kubectl("label", "node", agent.real_node, AGENT_LABEL, "--overwrite")
        _wait_for_agent(agent)

    yield come_back
    _configure(agent, EVICT="true", RESTART_UNPROTECTED="false")
    agent.kubectl("delete", "pods", "-n", NODE_SYSTEM, "--all", "--timeout=120s")
    come_back()


def test_containers_that_started_without_the_agent_come_back_with_the_library(
    agent: Site, away: Callable[[], None]
) -> None:
    names = {policy: policy.lower() for policy in POLICIES}
    for policy, name in names.items():
        made = _sharing(agent, name, "0.25", ["python3", "-c", TELLS])
        made["spec"] |= {"restartPolicy": policy, "securityContext": {"runAsUser": 4711}}
        agent.apply(made)
    assert [_words(agent, name, 1)[0] for name in names.values()] == ["False"] * len(names)

    away()
    is_restarted = {"always": 1, "onfailure": 1, "never": 0}
    agent.wait("restarts", READY_S, lambda: _restarts(agent), is_restarted)
    said = {name: _words(agent, name, 1)[-1] for name in names.values()}
    assert said == {"always": "True", "onfailure": "True", "never": "False"}
    _words(agent, "never", len(_words(agent, "never", 1)) + N_LOOKS)
    assert _restarts(agent) == is_restarted, "once"

    told = {"GpuUnprotected", "GpuContainerRestarted"}
    for name in ("always", "onfailure"):
        _wait_told(agent, name, told)
    _wait_told(agent, "never", {"GpuUnprotected"})
    assert agent.reasons(SHARED, "never") & told == {"GpuUnprotected"}
    beyond = f"{SHARED}/never: GpuUnprotected"
    agent.wait("the node's condition", READY_S, lambda: _beyond_bounds(agent), beyond)


def _wait_told(site: Site, pod: str, reasons: set[str]) -> None:
    """Until a pod has events with these reasons."""
    site.wait(f"events of {pod}", READY_S, lambda: site.reasons(SHARED, pod) & reasons, reasons)


def _configure(site: Site, **options: str) -> None:
    """Options of the agent, for the next one that starts."""
    data = {f"BALLAST_AGENT_{name}": value for name, value in options.items()}
    patch = ("--type=merge", "-p", json.dumps({"data": data}))
    site.kubectl("patch", "configmap", "ballast-agent", "-n", NODE_SYSTEM, *patch)


def _restarts(site: Site) -> dict[str, int]:
    """How often a container of each pod was killed and restarted."""
    found = {}
    for pod in site.get("pods", "-n", SHARED):
        (status,) = pod["status"]["containerStatuses"]
        ended = status["lastState"].get("terminated", {"exitCode": KILLED})
        assert ended["exitCode"] == KILLED
        found[pod["metadata"]["name"]] = status["restartCount"]
    return found


def _beyond_bounds(site: Site) -> str:
    """Which pods the agent says are beyond their bounds, and why."""
    conditions = site.gpu_node(site.real_node)["status"]["conditions"]
    (found,) = [each for each in conditions if each["type"] == "PodsWithinBounds"]
    message: str = found["message"]
    return message


def _pod(site: Site, name: str, share: str, code: str) -> workloads.Manifest:
    return _sharing(site, name, share, ["python3", "-c", PROGRAM, code])


def _sharing(site: Site, name: str, share: str, command: list[str]) -> workloads.Manifest:
    template = workloads.fraction(site.image(), share, site.real_node)
    container = template["spec"]["containers"][0]
    container["command"] = command
    container["env"] = [{"name": "FAKECUDA_STATE", "value": STATE}]
    return workloads.pod(name, SHARED, template)


def _with_card(pod: workloads.Manifest, card: str) -> workloads.Manifest:
    """The pod, on the card that the agent sees.

    A real driver knows the number of every process; the tests' own looks for it, and is allowed to
    where the process has no rights that the agent has not.
    """
    (container,) = pod["spec"]["containers"]
    container["env"] = [{"name": "FAKECUDA_STATE", "value": f"{INSIDE}/state"}]
    container["volumeMounts"] = [{"name": card, "mountPath": INSIDE}]
    container["securityContext"] = {"runAsUser": 0, "capabilities": {"drop": ["ALL"]}}
    pod["spec"]["volumes"] = [{"name": card, "persistentVolumeClaim": {"claimName": card}}]
    return pod


def _first_use(site: Site, pod: str) -> tuple[float, int]:
    """When a pod first used the card, by the clock that all share, and what the driver answered."""
    assert site.node is not None
    first_s, status = json.loads(site.node.run("cat", f"{CARD_FOLDER}/{pod}.first"))
    return first_s, status


def _watch_ends(site: Site, pods: set[str]) -> dict[str, tuple[float, float]]:
    """When each of the pods was deleted, and when it was gone, by this machine's clock."""
    assert site.plane is not None
    deleted, gone = dict[str, float](), dict[str, float]()
    until_s = time.time() + GONE_S
    while set(gone) < pods:
        found = site.plane.admin.get(f"/api/v1/namespaces/{SHARED}/pods")["items"]
        now_s = time.time()
        if now_s > until_s:
            raise NotSeenError(f"gone in {GONE_S:.0f} s: wanted {sorted(pods)}, saw {sorted(gone)}")
        there = {each["metadata"]["name"]: each["metadata"] for each in found}
        for name in pods - set(gone):
            if name not in there:
                gone[name] = now_s
            elif "deletionTimestamp" in there[name]:
                deleted.setdefault(name, now_s)
        time.sleep(0.1)
    return {name: (deleted.get(name, at), at) for name, at in gone.items()}


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
