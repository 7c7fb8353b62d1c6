"""The extender's book follows events and counts what projects use."""

from extender.api.events import Removed, Synced, Upserted
from extender.api.kinds import GpuDepartment, GpuNode, GpuNodePool, GpuProject
from extender.api.names import LABEL_NODE_POOL
from extender.http.book import Book
from tests.support.builders import part, pod, pool
from tests.unit.http.books import book, node, row


def test_the_book_is_ready_when_all_kinds_are_listed() -> None:
    known = Book()
    for kind in (GpuNode, GpuNodePool, GpuDepartment):
        known.apply(Synced(kind))
    assert not known.is_synced
    known.apply(Synced(GpuProject))
    assert known.is_synced


def test_an_older_version_of_a_ledger_is_passed_over() -> None:
    held = row(pod("h").build(), part(0, 500))
    known = book(node("n1", held).version(7).build())
    known.apply(Upserted(node("n1").version(6).build()))
    assert known.row("uid-h", "n1") == held
    known.apply(Upserted(node("n1").version(8).build()))
    assert known.row("uid-h", "n1") is None


def test_a_ledger_made_anew_counts_from_its_first_version() -> None:
    held = row(pod("h").build(), part(0, 500))
    known = book(node("n1", held).version(7).build())
    known.apply(Upserted(node("n1").uid("second").version(3).build()))
    assert known.row("uid-h", "n1") is None


def test_use_follows_rows_and_pools() -> None:
    held = row(pod("h").build(), part(0, 500))
    labelled = node("n1", held).labels({LABEL_NODE_POOL: "fast"}).build()
    known = book(labelled)
    assert known.use_of("team-a", "fast") == 500
    known.apply(Upserted(pool("fast", speed="high").build()))
    assert known.use_of("team-a", "fast") == 500
    known.apply(Removed(GpuNode, "uid-gpu-n1", "", "n1"))
    assert known.use_of("team-a", "fast") == 0
    assert (len(known), known.pool_of("n1")) == (0, "")


def test_a_promise_counts_until_it_is_kept_or_broken() -> None:
    known = book()
    with known.promised("team-a", "default", 700):
        assert known.use_of("team-a", "default") == 700
    assert known.use_of("team-a", "default") == 0
