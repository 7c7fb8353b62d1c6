"""Revisions of one node's ledger, as a watch delivers them."""

from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.kinds import CardShare, GpuNode, Row, RowState
from tests.support.builders import gpu_node


def row(
    uid: str,
    milli: int,
    since: int,
    *,
    index: int = 0,
    project: str = "a",
    state: RowState = "reserved",
) -> Row:
    return Row(
        uid=uid,
        namespace="ns",
        name=uid,
        project=project,
        cards=[CardShare(index, milli, 1)],
        state=state,
        reserved_at=since,
    )


def revision(changed_at: int, *rows: Row, node: str = "n", pool: str = "default") -> Upserted:
    made: GpuNode = gpu_node(node).cards(4, model="A100").holds(*rows).build()
    made.metadata.labels = {"ballast.dev/node-pool": pool}
    return Upserted(replace(made, spec=replace(made.spec, changed_at=changed_at)))
