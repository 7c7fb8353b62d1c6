"""The reader misses nothing: pages, deletions, a killed API server, a compacted history."""

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.integration.auditor.writer import Writer
from tests.support.auditor import Auditor, replay
from tests.support.auditor.__main__ import judge
from tests.support.auditor.etcd import HistoryLostError, Reader
from tests.support.auditor.fixtures import store_of
from tests.support.auditor.sight import PodSeen, see
from tests.support.controlplane.handles import Api


async def test_an_auditor_that_comes_late_takes_what_it_finds_as_given(
    api: Api, writer: Writer
) -> None:
    await writer.run("a", "n1", 0)
    async with Auditor(store_of(api)) as auditor:
        await writer.run("b", "n1", 0)
        verdict = await auditor.finish(settle_s=0)
    assert verdict.is_clean
    assert verdict.counts.binds == 1


async def test_what_was_recorded_gives_the_same_verdict(
    api: Api, writer: Writer, tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    async with Auditor(store_of(api), record=path) as auditor:
        await writer.run("a", "n1", 0)
        await writer.write_rows(await writer.gpu_node("n1"), [])
        await writer.delete("a")
        live = await auditor.finish(settle_s=0)
    again = judge(path)
    assert again.counts == live.counts
    assert {str(each) for each in live.violations} == {str(each) for each in again.violations}
    revisions = [each.revision for each in replay(path) if not each.is_initial]
    assert revisions == sorted(revisions)


async def test_an_evicted_pod_is_marked_by_one_write_and_told_to_leave_by_the_next(
    api: Api, writer: Writer, tmp_path: Path
) -> None:
    """What E2 takes for an eviction. It holds for bound pods that have not started, too."""
    path = tmp_path / "history.jsonl"
    async with Auditor(store_of(api), record=path, needs_binds=False) as auditor:
        await writer.run("a", "n1", 0)
        await writer.evict("a")
        await auditor.finish(settle_s=0)
    pods = [each for each in replay(path) if each.kind == "Pod" and each.name == "a"]
    seen = [see("Pod", each.value) for each in pods if not each.is_deletion]
    told = [(each.eviction != "", each.is_leaving) for each in seen if isinstance(each, PodSeen)]
    assert told[-3:] == [(False, False), (True, False), (True, True)]


async def test_a_killed_and_restarted_etcd_loses_no_revision(
    api: Api, writer: Writer, auditor: Auditor
) -> None:
    await writer.run("a", "n1", 0)
    await auditor.catch_up()
    await asyncio.to_thread(api.control_plane.restart, "etcd")
    await writer.run("b", "n1", 0)
    verdict = await auditor.finish(settle_s=0)
    assert verdict.is_clean
    assert verdict.counts.binds == 2


async def test_a_history_with_a_hole_is_an_error(api: Api, writer: Writer) -> None:
    """What the reader has not yet read is compacted away while it is not connected."""
    async with aiohttp.ClientSession() as session:
        reader = Reader(store_of(api), session)
        await reader.read_state()
        await writer.add_pod("a", "0.5")
        await writer.delete("a")
        await asyncio.to_thread(api.control_plane.compact_etcd)
        with pytest.raises(HistoryLostError, match="compacted"):
            await asyncio.wait_for(anext(reader.changes()), 60)


async def test_the_command_exits_with_1_when_it_saw_no_bind(api: Api, writer: Writer) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.auditor", "--seconds", "0.5"),
        *("--etcd", store_of(api).url),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"no bind was seen" in output
