"""The auditor detects each fault that a part of Ballast could commit."""

import pytest

from tests.integration.auditor.writer import RefusedError, Writer, cards_text
from tests.support.auditor import Auditor


async def test_a_writer_without_faults_is_clean(writer: Writer, auditor: Auditor) -> None:
    await writer.run("a", "n1", 0)
    await writer.run("b", "n1", 0)
    verdict = await auditor.finish(settle_s=0)
    assert str(verdict).splitlines()[1:] == []
    assert verdict.is_clean
    assert (verdict.counts.pods, verdict.counts.binds, verdict.counts.rows) == (2, 2, 2)


async def test_an_audit_of_nothing_is_not_clean(writer: Writer, auditor: Auditor) -> None:
    await writer.add_pod("a", "0.5")
    verdict = await auditor.finish(settle_s=0)
    assert verdict.saw_too_little
    assert not verdict.is_clean


async def test_no_compare_and_swap_turns_it_red(writer: Writer, auditor: Auditor) -> None:
    """Two writers read the same ledger; neither swaps, so the second wipes out the first."""
    a, b = await writer.add_pod("a", "0.7"), await writer.add_pod("b", "0.7")
    read_by_both = await writer.gpu_node("n1")
    await writer.reserve(read_by_both, a, 0, 700, swaps=False)
    await writer.reserve(read_by_both, b, 0, 700, swaps=False)
    for pod in (a, b):
        await writer.release(pod["metadata"]["name"], "n1")
        await writer.bind(pod, "n1", cards_text(0, 700))
    verdict = await auditor.finish(settle_s=0)
    assert {"A3", "B3"} <= verdict.invariants()


async def test_compare_and_swap_would_have_prevented_it(writer: Writer, auditor: Auditor) -> None:
    a, b = await writer.add_pod("a", "0.7"), await writer.add_pod("b", "0.7")
    read_by_both = await writer.gpu_node("n1")
    await writer.reserve(read_by_both, a, 0, 700)
    with pytest.raises(RefusedError) as refusal:
        await writer.reserve(read_by_both, b, 0, 700)
    assert refusal.value.status == 409
    assert (await auditor.finish(settle_s=0)).violations == []


async def test_a_stale_view_of_what_is_free_turns_it_red(writer: Writer, auditor: Auditor) -> None:
    """The write is swapped, but what fits was decided on an older view."""
    a, b = await writer.add_pod("a", "0.7"), await writer.add_pod("b", "0.7")
    await writer.reserve(await writer.gpu_node("n1"), a, 0, 700)
    await writer.reserve(await writer.gpu_node("n1"), b, 0, 700)
    verdict = await auditor.finish(settle_s=0)
    assert verdict.invariants() == {"A1"}


async def test_a_row_freed_too_early_turns_it_red(writer: Writer, auditor: Auditor) -> None:
    await writer.run("a", "n1", 0)
    await writer.write_rows(await writer.gpu_node("n1"), [])
    await writer.run("b", "n1", 0, "0.9")
    assert "A3" in (await auditor.finish(settle_s=0)).invariants()


async def test_a_row_freed_under_a_binding_in_flight_turns_it_red(
    writer: Writer, auditor: Auditor
) -> None:
    pod = await writer.add_pod("a", "0.5")
    await writer.reserve(await writer.gpu_node("n1"), pod, 0, 500)
    await writer.release("a", "n1")
    await writer.write_rows(await writer.gpu_node("n1"), [])
    await writer.bind(pod, "n1", cards_text(0, 500))
    assert {"R1", "A3", "B3"} <= (await auditor.finish(settle_s=0)).invariants()


async def test_annotate_then_bind_turns_it_red(writer: Writer, auditor: Auditor) -> None:
    pod = await writer.add_pod("a", "0.5")
    await writer.reserve(await writer.gpu_node("n1"), pod, 0, 500)
    await writer.release("a", "n1")
    await writer.annotate("a", cards_text(0, 500))
    await writer.bind(pod, "n1")
    assert (await auditor.finish(settle_s=0)).invariants() == {"B3"}


async def test_an_eviction_of_a_queue_within_its_quota_turns_it_red(
    writer: Writer, auditor: Auditor
) -> None:
    await writer.add_project("red", quota=4)
    pod = await writer.add_pod("a", "0.5", labels={"ballast.dev/project": "red"})
    await writer.reserve(await writer.gpu_node("n1"), pod, 0, 500, project="red")
    await writer.release("a", "n1")
    await writer.bind(pod, "n1", cards_text(0, 500))
    await writer.evict("a")
    verdict = await auditor.finish(settle_s=20)
    assert verdict.invariants() == {"E2"}
    assert verdict.counts.evictions == 1
