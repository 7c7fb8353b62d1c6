"""Alerts have runbooks, and dashboards are as generated."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.boards import __main__ as generator
from manifests.boards.boards import BOARDS

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs" / "runbooks.md"


def test_boards_are_as_generated() -> None:
    assert generator.differences() == []


def test_a_board_that_was_edited_by_hand_is_named(tmp_path: Path) -> None:
    for name, text in generator.rendered().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "ballast-queue.json").write_text("{}")
    (tmp_path / "mine.json").write_text("{}")
    assert generator.differences(tmp_path) == ["ballast-queue.json", "mine.json"]
    told = subprocess.run(
        [sys.executable, "-m", "manifests.boards", "--check"], cwd=ROOT, check=False
    )
    assert told.returncode == 0


def test_the_overlay_brings_every_board() -> None:
    overlay = yaml.safe_load((generator.FOLDER.parent / "kustomization.yaml").read_text("utf-8"))
    (maps,) = overlay["configMapGenerator"]
    assert {Path(each).name for each in maps["files"]} == set(generator.rendered())


@pytest.mark.parametrize("board", BOARDS, ids=lambda each: each.uid)
def test_panels_do_not_overlap_and_use_the_variables_of_their_board(board: object) -> None:
    (made,) = [each.as_json() for each in BOARDS if each is board]
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in made["panels"]]
    assert len(set(places)) == len(places)
    known = {each["name"] for each in made["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(made["panels"])))
    assert used <= known


def alerts() -> dict[str, Any]:
    """The rules of alerts by name."""
    (rule,) = yaml.safe_load_all((generator.FOLDER.parent / "alerts.yaml").read_text("utf-8"))
    rules = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    return {each["alert"]: each for each in rules if "alert" in each}


def test_every_runbook_belongs_to_an_alert() -> None:
    text = RUNBOOKS.read_text("utf-8")
    assert set(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == alerts().keys()


#: Alert -> what its rule says (the end of its expression, or for how long), and its runbook.
BOUNDS = {
    "BallastBudgetIsNearlyUsed": {">= 0.9 * ballast_queue_month_budget": "nine tenths"},
    "BallastCacheIsStale": {"> 600": "nothing for ten minutes"},
    # It is renewed 30 days before its end.
    "BallastCertificateIsNotRenewed": {"< 20 * 86400": "renewed ten days ago"},
    "BallastEvictionsAreUseless": {"[1h]) > 5": "More than five pods in an hour"},
    "BallastGpusIdleWhileWorkWaits": {"30m": "For half an hour", "> 0.1 *": "a tenth"},
    "BallastJobNearsItsBackoffLimit": {">= 4 and": "four failed pods or more"},
    "BallastProjectIsBelowItsQuota": {"30m": "For half an hour"},
    "BallastProjectsReclaimFromEachOther": {"increase1h > 3": "more than three pods"},
    "BallastUsageRecordsAreBehind": {"> 600": "for ten minutes"},
}


@pytest.mark.parametrize("alert", BOUNDS)
def test_a_runbook_says_from_when_its_alert_fires(alert: str) -> None:
    rule, text = alerts()[alert], RUNBOOKS.read_text("utf-8")
    (section,) = re.findall(rf"^## {alert}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    said = " ".join(section.split())
    for bound, words in BOUNDS[alert].items():
        assert bound in f"{rule['expr']} {rule.get('for', '')}"
        assert words in said
