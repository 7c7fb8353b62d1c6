"""The agent's metrics: which pod holds which card."""

from pathlib import Path

from extender.api.kinds import CardShare, GpuNode, GpuNodeSpec, Row, RowState
from extender.api.objects import ObjectMeta
from gpu_shim.agent.observe import Figures, Parts
from tests.unit.gpu_shim.test_agent_lending import Node


def test_each_pod_is_reported_beside_the_card_that_it_holds(tmp_path: Path) -> None:
    node = Node(tmp_path)
    states: dict[str, RowState] = {"runs": "bound", "comes": "reserved", "waits": "nominated"}
    cards = [CardShare(0, 500, 10)]
    rows = [
        Row(uid=name, namespace="t", name=name, project="team", state=state, cards=cards)
        for name, state in states.items()
    ]
    node.agent.apply(GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=rows)))
    told = {labels for _, labels, value in Figures(Parts(node.agent))._rows() if value == 1}
    assert told == {("t", name, "GPU-0", "0", "team") for name in ("runs", "comes")}
