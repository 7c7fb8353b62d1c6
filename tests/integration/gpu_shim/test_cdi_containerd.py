"""Cards delivered by CDI on a real containerd, by the kind in the node's CDI specification."""

import json
from pathlib import Path

import grpc
import pytest

from gpu_shim.agent.cdi import CdiDevices
from gpu_shim.agent.nri.adjust import DRIVER, Delivery
from tests.integration.gpu_shim.containers import until
from tests.integration.gpu_shim.test_nri_containerd import CARDS, UIDS, Node
from tests.integration.gpu_shim.test_nri_containerd import node as runtime
from tests.support.fakecuda import SECOND, UUID

__all__ = ["runtime"]

#: What the device plugin of NVIDIA's GPU Operator writes, and what the container toolkit does.
PLUGIN = "k8s.device-plugin.nvidia.com/gpu"
TOOLKIT = "nvidia.com/gpu"


def specify(root: Path, kind: str, *uuids: str) -> None:
    """Write a specification: each card brings a variable of its own, all bring the driver."""
    driver = {
        "hostPath": str(root / "driver"),
        "containerPath": DRIVER,
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    }
    specification = {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {"name": uuid, "containerEdits": {"env": [f"CARD_{at}={uuid}"]}}
            for at, uuid in enumerate(uuids)
        ],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "mounts": [driver]},
    }
    (root / "cdi").mkdir(exist_ok=True)
    path = root / "cdi" / f"{kind.replace('/', '-')}.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(specification))
    fresh.replace(path)


@pytest.fixture
async def node(runtime: Node) -> Node:
    """A node whose only way to its cards is CDI, with a pod that has a part of one."""
    folder = runtime.runtime.root / "cdi"
    folder.mkdir()
    runtime.plugin.delivery = Delivery("cdi", cdi=CdiDevices((folder,)))
    runtime.rows((UIDS[0], 64))
    await until(lambda: runtime.plugin.is_connected)
    return runtime


SEEN = "begin(); tell([memory(), sorted(k for k in os.environ if k.startswith('CARD_'))])"


@pytest.mark.parametrize("kind", [PLUGIN, TOOLKIT])
async def test_a_container_gets_its_card_by_the_kind_that_the_node_has(
    node: Node, kind: str
) -> None:
    specify(node.runtime.root, kind, SECOND, UUID)
    pod = await node.runtime.pod(UIDS[0], CARDS)
    assert await node.gpu(pod, SEEN) == ['[[64, 64], ["CARD_1"]]']


async def test_a_runtime_refuses_a_kind_that_the_node_does_not_have(node: Node) -> None:
    """Why the kind is looked up: with the operator alone, the toolkit's kind starts no pod."""
    specify(node.runtime.root, PLUGIN, UUID)
    node.plugin.delivery = Delivery("cdi", cdi=CdiDevices(kind=TOOLKIT))
    pod = await node.runtime.pod(UIDS[0], CARDS)
    with pytest.raises(grpc.aio.AioRpcError, match=f"unresolvable CDI devices {TOOLKIT}={UUID}"):
        await node.gpu(pod, SEEN)


async def test_a_card_without_a_specification_is_delivered_as_files_until_there_is_one(
    node: Node,
) -> None:
    root = node.runtime.root
    node.plugin.delivery = Delivery("cdi", root / "driver", cdi=CdiDevices((root / "cdi",)))
    specify(root, PLUGIN, SECOND)
    pod = await node.runtime.pod(UIDS[0], CARDS)
    assert await node.gpu(pod, SEEN) == ["[[64, 64], []]"]
    assert len(node.plugin.delivery.problems([UUID])) == 1
    specify(root, PLUGIN, SECOND, UUID)
    assert await node.gpu(pod, SEEN) == ['[[64, 64], ["CARD_1"]]']
