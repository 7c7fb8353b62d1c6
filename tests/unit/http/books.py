"""A book that was filled by events, and what the tests of verbs ask it."""

from typing import Any

from msgspec.structs import replace

from extender.api.events import Upserted
from extender.api.kinds import GpuNode, GpuProject, PoolUse, QueueStatus, Row
from extender.api.objects import Pod
from extender.api.reasons import Reason, sentence
from extender.http.book import Book
from extender.http.claim import PodClaim, read_claim
from tests.support.builders import GpuNodeBuilder, PodBuilder, gpu_node, pod, project, whole
from tests.support.builders import row as row_of


def book(*objects: object) -> Book:
    """A book of project team-a with a quota of 100 GPUs, and of these objects."""
    made = Book()
    for each in (project("team-a").quota(100).build(), *objects):
        made.apply(Upserted(each))
    return made


def row(holder: Pod, *args: Any, project: str = "team-a", **fields: Any) -> Row:
    return replace(row_of(holder, *args), project=project, **fields)


def node(name: str, *rows: Row, cards: int = 2) -> GpuNodeBuilder:
    return gpu_node(name, cards).holds(*rows)


def claim(builder: PodBuilder) -> PodClaim:
    return read_claim(builder.build())


def reasons(texts: dict[str, str]) -> dict[str, Reason]:
    """Each text's reason; a text that is not a constant sentence fails."""
    found = {name: Reason(text.split(":")[0]) for name, text in texts.items()}
    assert all(texts[name] == sentence(reason) for name, reason in found.items())
    return found


def with_share(name: str, fair_share: str, quota: str = "1") -> GpuProject:
    made = project(name).quota(quota).build()
    status = QueueStatus(node_pools=[PoolUse(name="default", fair_share=fair_share)])
    return replace(made, status=status)


def full_node(name: str, **fields: Any) -> GpuNode:
    """A node of one card that pod `h-<name>` holds."""
    held = row(pod(f"h-{name}").build(), whole(0), state="bound", **fields)
    return node(name, held, cards=1).build()
