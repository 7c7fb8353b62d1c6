"""GpuNodes and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from msgspec.structs import replace

from extender.api import names
from extender.api.kinds import (
    CardShare,
    Device,
    ForeignHold,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    MoveHold,
    Row,
    RowState,
)
from extender.api.objects import (
    Pod,
)
from extender.api.units import MILLI_PER_GPU, share_mib
from tests.support.builders.metadata import Builder
from tests.support.builders.nodes import CARD_MIB


def whole(*indexes: int, mib: int = CARD_MIB) -> list[CardShare]:
    """Whole cards."""
    return [CardShare(index, MILLI_PER_GPU, mib) for index in indexes]


def part(index: int, milli: int, *, of_mib: int = CARD_MIB) -> list[CardShare]:
    """A share of one card."""
    return [CardShare(index, milli, share_mib(milli, of_mib))]


class GpuNodeBuilder(Builder):
    """A GpuNode without cards and rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._meta = replace(self._meta, uid=f"uid-gpu-{name}")
        self._devices: list[Device] = []
        self._rows: list[Row] = []
        self._foreign: list[ForeignHold] = []

    def cards(self, count: int, mib: int = CARD_MIB, model: str = "") -> Self:
        self._devices = [Device(index=i, memory_mib=mib, model=model) for i in range(count)]
        return self

    def sick(self, *indexes: int) -> Self:
        self._devices = [
            replace(device, health="Unhealthy") if device.index in indexes else device
            for device in self._devices
        ]
        return self

    def holds(self, *rows: Row) -> Self:
        self._rows += rows
        return self

    def foreign(self, name: str, gpus: int) -> Self:
        """Adds cards that a pod without a row holds, as the controller writes them."""
        hold = ForeignHold(uid=f"uid-{name}", namespace="elsewhere", name=name, gpus=gpus)
        self._foreign.append(hold)
        return self

    def build(self) -> GpuNode:
        status = GpuNodeStatus(devices=list(self._devices), foreign=list(self._foreign))
        return GpuNode(metadata=self._meta, spec=GpuNodeSpec(rows=list(self._rows)), status=status)


def gpu_node(name: str, cards: int = 0) -> GpuNodeBuilder:
    """The GpuNode of a node."""
    return GpuNodeBuilder(name).cards(cards)


def row(
    held_by: Pod,
    cards: Sequence[CardShare],
    state: RowState = "reserved",
    *,
    epoch: int = 1,
    move: MoveHold | None = None,
) -> Row:
    """The row of a pod."""
    meta = held_by.metadata
    return Row(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        group=meta.label(names.LABEL_POD_GROUP),
        cards=list(cards),
        state=state,
        epoch=epoch,
        move=move,
    )


def kept_row(
    held_by: Pod, cards: Sequence[CardShare], *, cpu_milli: int = 0, epoch: int = 1
) -> Row:
    """The nominated row for the successor of a moved pod."""
    owner = held_by.metadata.controller
    assert owner is not None
    move = MoveHold(owner=owner.uid, cpu_milli=cpu_milli)
    return row(held_by, cards, "nominated", epoch=epoch, move=move)
