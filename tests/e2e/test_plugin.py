"""Cards that NVIDIA's device plugin gives out, as in the default installation: shared and whole.

The plugin and kubelet are real, the driver that the plugin asks is the tests' own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e import workloads
from tests.e2e.conftest import IMAGE, Installed
from tests.e2e.site import (
    AGENT_FOLDER,
    CARD_FOLDER,
    NODE_SYSTEM,
    REAL_MIB,
    ROOT,
    Site,
    driver_files,
    holder_image,
)
from tests.e2e.workloads import DEPARTMENT, LANGUAGE
from tests.support import fakecuda, nvidia
from tests.support.node import NodeOptions, RealNode

NODE: Final = "with-plugin"
OVERLAY: Final = Path(__file__).with_name("plugin-cards")
AGENT_LABEL: Final = "nvidia.com/gpu.present"
HOLDER_LABEL: Final = "app.kubernetes.io/component=gpu-holder"
PROGRAM: Final = (ROOT / "tests" / "integration" / "gpu_shim" / "hostprogram.py").read_text()
N_CARDS: Final = 2
SEEN_S: Final = 60.0
STATE: Final = "/tmp/card"
#: Makes the state of two cards, and says how much memory a program sees of each, by UUID. (A real
#: specification of CDI would give it one of them only.)
SEEN: Final = f"""
open({STATE!r}, 'wb').write(({REAL_MIB} * MIB).to_bytes(8, 'little') + bytes(1 << 23))
begin()
found = {{}}
for ordinal in range({N_CARDS}):
    context, uuid = c_void_p(), (ctypes.c_ubyte * 16)()
    assert cuda.cuDevicePrimaryCtxRetain(byref(context), ordinal) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuDeviceGetUuid_v2(uuid, ordinal) == 0
    found[bytes(uuid).hex()] = memory()[1]
tell(found)
time.sleep(3600)
"""
#: Says which card it was given.
GIVEN: Final = """
import json, os, time
print(json.dumps(os.environ["NVIDIA_VISIBLE_DEVICES"]), flush=True)
time.sleep(3600)
"""


@pytest.fixture
def users(installed: Installed, tmp_path: Path) -> Iterator[Site]:
    """The installed cluster with a node on which NVIDIA's device plugin allocates the cards."""
    found = installed.site
    if found.plane is None:
        pytest.skip("nodes of a given cluster are not ours to add")
    if not nvidia.PROGRAMS.has():
        pytest.skip("NVIDIA's device plugin is not built: make nvidia")
    found.kubectl("apply", "--server-side", "-k", str(OVERLAY))
    files = driver_files(tmp_path / "driver")
    labels = {AGENT_LABEL: "true", "nvidia.com/gpu.memory": str(REAL_MIB)}
    with RealNode(found.plane, NodeOptions(NODE, ix=1, labels=labels, files=files)) as node:
        node.import_image(IMAGE)
        node.import_image(holder_image(tmp_path))
        _start_plugin(node)
        found.apply(
            workloads.namespace(LANGUAGE),
            workloads.department(DEPARTMENT, N_CARDS),
            workloads.project(LANGUAGE, DEPARTMENT, N_CARDS),
        )
        found.wait("cards of the plugin", SEEN_S, lambda: _n_cards(found), N_CARDS)
        wanted = {"RuntimeConnected": "True", "CardsMapped": "True"}
        found.wait("the agent", SEEN_S, lambda: wanted.items() <= _conditions(found).items(), True)
        yield found
        found.kubectl("delete", "pods", "-n", LANGUAGE, "--all", "--wait", "--timeout=120s")
        # The agent goes while there is a kubelet that ends it.
        found.kubectl("label", "node", NODE, f"{AGENT_LABEL}-")
        found.wait("the end of the agent", SEEN_S, lambda: found.get("pods", "-n", NODE_SYSTEM), [])
    found.kubectl("delete", "node", NODE)


def test_shared_and_whole_cards_are_never_the_same(users: Site) -> None:
    users.apply(_pod(users, "half", {"gpu-fraction": "0.5"}, ["python3", "-c", PROGRAM, SEEN]))
    seen = _says(users, "half")
    shared = _uuid_of_row(users, "half")
    assert seen[_hex(shared)] == REAL_MIB // 2
    assert sorted(seen.values()) == [REAL_MIB // 2, REAL_MIB]
    (holder,) = _holders(users)
    assert holder["spec"]["nodeName"] == NODE

    look = ["python3", "-c", GIVEN]
    users.apply(_pod(users, "first", {}, look, whole=True))
    first = _says(users, "first")
    users.apply(_pod(users, "second", {}, look, whole=True))
    users.wait("second waits", SEEN_S, lambda: users.pods(LANGUAGE, "Pending"), ["second"])
    users.kubectl("delete", "pod", "half", "-n", LANGUAGE, "--wait", "--timeout=120s")
    second = _says(users, "second")

    assert second == shared
    assert {first, second} == {fakecuda.UUID, fakecuda.SECOND}
    assert _holders(users) == []
    assert _conditions(users)["CardsMapped"] == "True"


def _holders(site: Site) -> list[workloads.Manifest]:
    return site.get("pods", "-n", NODE_SYSTEM, "-l", HOLDER_LABEL)


def _uuid_of_row(site: Site, pod: str) -> str:
    """The card that the ledger gives to a pod, as the agent knows it."""
    node = site.gpu_node(NODE)
    (row,) = [each for each in node["spec"]["rows"] if each["name"] == pod]
    names = {each["index"]: each["uuid"] for each in node["status"]["devices"]}
    found: str = names[row["cards"][0]["index"]]
    return found


def _hex(uuid: str) -> str:
    return uuid.removeprefix("GPU-").replace("-", "")


def _start_plugin(node: RealNode) -> None:
    """NVIDIA's device plugin, with the tests' driver and what kubelet has for plugins."""
    driver = [f"LD_LIBRARY_PATH={AGENT_FOLDER}/driver", f"FAKECUDA_STATE={CARD_FOLDER}/state"]
    program = str(nvidia.PROGRAMS.path("nvidia-device-plugin"))
    flags = [program, "--device-list-strategy=envvar", "--device-id-strategy=uuid"]
    node.start_program(Path("/usr/bin/env"), *driver, f"FAKECUDA_CARDS={N_CARDS}", *flags)


def _pod(
    site: Site, name: str, annotations: dict[str, str], command: list[str], *, whole: bool = False
) -> workloads.Manifest:
    template = workloads.whole(site.image(), 1) if whole else workloads.plain(site.image())
    template["metadata"]["annotations"] = annotations
    container = template["spec"]["containers"][0]
    container["command"] = command
    driver = {"FAKECUDA_STATE": STATE, "FAKECUDA_CARDS": str(N_CARDS)}
    container["env"] = [{"name": key, "value": value} for key, value in driver.items()]
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    return workloads.pod(name, LANGUAGE, template)


def _says(site: Site, pod: str) -> Any:
    """The first line that a pod prints, once it runs."""

    def words() -> list[str]:
        if pod not in site.pods(LANGUAGE, "Running"):
            return []
        return site.kubectl("logs", pod, "-n", LANGUAGE).splitlines()

    site.wait(f"a line of {pod}", SEEN_S, lambda: bool(words()), True)
    return json.loads(words()[0])


def _n_cards(site: Site) -> int:
    (node,) = [each for each in site.get("nodes") if each["metadata"]["name"] == NODE]
    return int(node["status"]["allocatable"].get("nvidia.com/gpu", 0))


def _conditions(site: Site) -> dict[str, str]:
    found = [each for each in site.get("gpunodes") if each["metadata"]["name"] == NODE]
    all_of = [each for node in found for each in node.get("status", {}).get("conditions", [])]
    return {each["type"]: each["status"] for each in all_of}
