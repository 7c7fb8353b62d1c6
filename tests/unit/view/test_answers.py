"""Answers as Kubernetes' clients read them."""

import msgspec
import pytest

from extender.view.answers import (
    API_VERSION,
    Answer,
    AsOf,
    Metadata,
    QueueList,
    ShareList,
    Simulation,
    SnapshotOfCluster,
)

NOW = AsOf("2026-01-01T00:00:00Z", "1")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (QueueList(as_of=NOW), "QueueList"),
        (ShareList(as_of=NOW), "ShareList"),
        (Simulation(), "Simulation"),
        (SnapshotOfCluster(metadata=Metadata("now"), as_of=NOW, scenario={}), "Snapshot"),
    ],
)
def test_every_answer_has_its_kind_and_a_list_its_items(answer: Answer, kind: str) -> None:
    """Clients refuse an object without a kind, and tell a list by its items."""
    told = msgspec.json.decode(msgspec.json.encode(answer))
    assert (told["apiVersion"], told["kind"]) == (API_VERSION, kind)
    assert told.get("items", []) == []
    assert ("items" in told) == kind.endswith("List")
