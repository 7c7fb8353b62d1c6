"""Runs all attempts of the tables, threat by threat, against the running system."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.attacks.attempt import PODS, VICTIMS, Tally
from tests.attacks.judge import changes
from tests.attacks.raw_client import MERGE
from tests.attacks.stage import Stage
from tests.attacks.threats.references import MARK
from tests.attacks.threats.strangers import SECRETS, strangers
from tests.attacks.threats.tables import IN_PROCESS, TABLES
from tests.support.auditor.auditor import Auditor

pytestmark = [pytest.mark.controlplane, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("threat", TABLES)
async def test_nobody_else_is_touched_by(
    stage: Stage, auditor: Auditor, tally: Tally, threat: str
) -> None:
    attempts = list(TABLES[threat]())
    assert attempts
    # In a thread, since the auditor runs meanwhile.
    succeeded = await asyncio.to_thread(stage.play, attempts, tally)
    assert not succeeded, "\n".join(succeeded)


async def test_no_other_namespace_is_touched_with_the_webhook_dead(
    stage: Stage, auditor: Auditor, tally: Tally
) -> None:
    succeeded = []
    stage.webhooks.kill()
    try:
        for threat in IN_PROCESS:
            attempts = list(TABLES[threat]())
            succeeded += await asyncio.to_thread(stage.play, attempts, tally, is_webhook_dead=True)
    finally:
        await asyncio.to_thread(stage.webhooks.start)
    assert not succeeded, "\n".join(succeeded)


async def test_strangers_learn_and_change_nothing_at_the_webhook(
    stage: Stage, auditor: Auditor, tally: Tally
) -> None:
    before = stage.judge.picture()
    found = []
    for title, path, body in strangers():
        status, said = await asyncio.to_thread(stage.ask_webhook, path, body)
        why = f"answered {status}" if status >= 500 else ""
        if any(word in said for word in SECRETS):
            why = f"told {said!r:.200}"
        if line := tally.note("T16", title, why):
            found.append(line)
    assert not found, "\n".join(found)
    assert not changes(before, stage.judge.picture())


async def test_no_text_of_a_tenants_is_a_label_or_breaks_a_log(stage: Stage) -> None:
    for program in (stage.installation.serve, stage.installation.control, stage.webhooks):
        metrics = await asyncio.to_thread(stage.metrics, program)
        assert "ballast_" in metrics
        assert MARK not in metrics, program.name
        lines = program.log_path.read_bytes().split(b"\n")
        ours = [line for line in lines if line.startswith(b"{")]
        assert ours
        for line in ours:
            assert isinstance(json.loads(line), dict)
        for line in lines:
            assert not any(byte < 0x20 and byte != 0x09 for byte in line), (program.name, line)


async def test_no_key_and_no_token_is_in_a_log_or_seen_from_outside(stage: Stage) -> None:
    for program in (stage.installation.serve, stage.installation.control, stage.webhooks):
        proc = Path(f"/proc/{program.pid}")
        for path in (program.log_path, proc / "cmdline", proc / "environ"):
            text = path.read_text(errors="replace")
            assert text
            assert "PRIVATE KEY" not in text
            assert "Bearer " not in text
            assert "eyJhbGci" not in text


async def test_the_judge_sees_what_an_administrator_does(stage: Stage) -> None:
    before = stage.judge.picture()
    path = f"{PODS.format(VICTIMS[0])}/fraction"
    for value in ("x", None):
        patch = {"metadata": {"labels": {"app": value}}}
        answer = stage.admin.send("PATCH", path, patch, MERGE)
        assert answer.is_stored
        seen = changes(before, stage.judge.picture())
        assert len(seen) == (1 if value else 0), seen


async def test_every_class_of_attack_was_tried_and_enough_of_them(
    request: pytest.FixtureRequest, tally: Tally
) -> None:
    if request.config.option.keyword:
        pytest.skip("only some attacks were asked for")
    wanted = {*TABLES, *(f"{threat}+" for threat in IN_PROCESS), "T16"}
    assert wanted <= tally.tried.keys()
    assert min(tally.tried.values()) > 0
    assert tally.n_tried >= 2000


async def test_the_auditor_saw_no_rule_broken(auditor: Auditor) -> None:
    verdict = await auditor.finish()
    assert verdict.is_clean, str(verdict)
