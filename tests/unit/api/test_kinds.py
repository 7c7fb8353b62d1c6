"""The JSON form of our kinds, where it determines what the API server stores."""

import msgspec
import pytest

from extender.api import kinds
from extender.api.kinds import (
    GpuNode,
    GpuNodePoolStatus,
    GpuPodGroupStatus,
    PoolUse,
    QueueStatus,
    QueueSummary,
    Row,
)
from extender.api.ledger import devices_status
from extender.api.objects import Condition, ObjectMeta


@pytest.mark.parametrize(
    "status",
    [
        QueueStatus(),
        QueueSummary(),
        GpuNodePoolStatus(),
        GpuPodGroupStatus(),
    ],
    ids=lambda status: type(status).__name__,
)
def test_status_that_went_back_to_nothing_is_still_written_whole(status: msgspec.Struct) -> None:
    assert len(msgspec.to_builtins(status)) == len(msgspec.structs.fields(status))


def test_entry_of_a_list_leaves_out_resources_that_nobody_counts() -> None:
    """A list goes out as a whole, so what is left out of an entry does not stay."""
    assert "cpu" not in msgspec.to_builtins(PoolUse(name="default"))
    counted = PoolUse(name="default", cpu=kinds.HostUse())
    assert len(msgspec.to_builtins(counted)["cpu"]) == 3


def test_condition_without_a_time_has_no_null() -> None:
    assert msgspec.to_builtins(Condition(type="Ready", status="True")) == {
        "type": "Ready",
        "status": "True",
    }


def test_row_of_a_whole_card_is_short() -> None:
    row = Row(uid="u", namespace="n", name="p", cards=[], state="bound")
    assert set(msgspec.to_builtins(row)) == {"uid", "namespace", "name", "cards", "state"}


def test_row_of_a_release_without_restart_policies_is_one_of_a_pod_that_is_not_restarted() -> None:
    before = b'{"uid":"u","namespace":"n","name":"p","cards":[],"state":"bound"}'
    assert msgspec.json.decode(before, type=Row).restart_policy == "Never"


def test_milli_of_a_row_is_the_sum_of_its_cards() -> None:
    cards = [kinds.CardShare(0, 500, 1), kinds.CardShare(1, 250, 1)]
    assert Row(uid="u", namespace="n", name="p", cards=cards, state="bound").milli == 750


def test_sums_of_the_rows_go_with_them() -> None:
    cards = [kinds.CardShare(0, 500, 1)]
    states: tuple[kinds.RowState, ...] = ("bound", "reserved", "nominated")
    rows = [Row(uid=s, namespace="n", name=s, cards=cards, state=s) for s in states]
    spec = kinds.GpuNodeSpec.of(rows)
    assert (spec.rows, spec.pods, spec.used) == (rows, 2, "1")
    empty = {"rows": [], "pods": 0, "used": "0", "changedAt": 7}
    assert msgspec.to_builtins(kinds.GpuNodeSpec.of([], 7)) == empty


def test_cards_are_counted_beside_the_devices() -> None:
    devices = [kinds.Device(index=0, memory_mib=1), kinds.Device(index=1, memory_mib=1)]
    devices[1].health = "Unhealthy"
    status = msgspec.convert(msgspec.to_builtins(devices_status(devices)), kinds.GpuNodeStatus)
    assert (status.devices, status.cards, status.healthy_cards) == (devices, 2, 1)


def test_node_without_a_pool_label_is_in_the_default_pool() -> None:
    assert GpuNode(metadata=ObjectMeta(name="n")).pool == "default"
    labels = {"ballast.dev/node-pool": "training"}
    assert GpuNode(metadata=ObjectMeta(name="n", labels=labels)).pool == "training"
