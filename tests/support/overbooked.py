"""Whether the rows of a node keep the rule of the ledger, by the rows alone."""

from extender.api.kinds import GpuNode
from extender.api.units import MILLI_PER_GPU
from extender.ledger.rows import held_on


def overbooked(gpu_node: GpuNode) -> list[str]:
    """Where the rows of the node break A1, one sentence each; empty for a valid ledger."""
    devices = {device.index: device for device in gpu_node.status.devices}
    firm = [row for row in gpu_node.spec.rows if row.state != "nominated"]
    found = []
    for index in sorted({card.index for row in firm for card in row.cards}):
        place = f"{gpu_node.metadata.name}/gpu{index}"
        milli, mib = held_on(index, firm)
        device = devices.get(index)
        if device is None:
            found.append(f"{place}: rows hold a card that does not exist")
        elif milli > MILLI_PER_GPU or mib > device.memory_mib:
            found.append(
                f"{place}: rows hold {milli} milli and {mib} MiB"
                f" of {MILLI_PER_GPU} and {device.memory_mib}"
            )
    return found
