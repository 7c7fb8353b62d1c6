"""`ballast replay philly`: its output, files and errors."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.lab.philly.command import philly
from extender.lab.philly.trace import COLUMNS, JOBS_FILE


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two tenants of the same size for a few hours of the first day."""
    rows = [
        f"2017-10-01 0{hour}:00:00,{3600 * (1 + hour % 3)}.0,8,0,{tenant}"
        for hour in range(6)
        for tenant in ("a", "b")
    ]
    with gzip.open(tmp_path / JOBS_FILE, "wt", encoding="utf-8") as text:
        text.write("\n".join([",".join(COLUMNS), *rows]) + "\n")
    return tmp_path


def run(*arguments: str | Path) -> str:
    found = CliRunner().invoke(philly, [str(each) for each in arguments])
    assert found.exit_code == 0, found.output
    return found.output


def refusal(*arguments: str | Path) -> str:
    found = CliRunner().invoke(philly, [str(each) for each in arguments])
    assert found.exit_code != 0
    return found.output


def test_one_policy_is_shown_figure_by_figure(data: Path) -> None:
    output = run("--data", data, "--nodes", "2", "--policy", "fifo-skip", "--tenants")
    assert "2 nodes x 8 GPUs, 12 jobs of days 1-61" in output
    assert "idle pend. %" in output
    assert "quota GPUs" in output


def test_several_policies_are_shown_in_one_table(data: Path) -> None:
    output = run("--data", data, "--nodes", "2", "--policy", "private", "--policy", "fairshare")
    assert "private partitions" in output
    assert "fair share, no reclaim, binpack" in output


def test_figures_are_written_as_json(data: Path) -> None:
    text = run(
        "--data",
        data,
        "--nodes",
        "2",
        "--policy",
        "fifo-skip",
        "--reclaim-band",
        "25",
        "-o",
        "json",
    )
    document = json.loads(text)
    assert document["protocol"]["reclaim_band_percent"] == 25
    assert document["protocol"]["quota_nodes"] == {"a": 1, "b": 1}
    assert [rule["rule"] for rule in document["rules"]] == ["fifo-skip"]
    assert document["rules"][0]["runs"][0]["jobs"] == 12


def test_seeds_give_a_run_each(data: Path) -> None:
    text = run(
        "--data", data, "--nodes", "2", "--policy", "private", "--seeds", "0-2", "-o", "json"
    )
    assert len(json.loads(text)["rules"][0]["runs"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nodes", "1"), "1 nodes: wants at least 2"),
        (("--days", "0-4"), "wants FIRST-LAST within 1-61"),
        (("--days", "5-4"), "wants FIRST-LAST within 1-61"),
        (("--days", "5-"), "wants FIRST-LAST within 1-61"),
        (("--days", "3-4"), "no job was submitted on days 3-4"),
        (("--seeds", "0-200"), "at most 100"),
        (("--policy", "lottery"), "is not one of"),
        (("--cycle", "-1"), "0<=x<=3600"),
        (("--reclaim-band", "101"), "0<=x<=100"),
    ],
)
def test_what_makes_no_sense_is_refused(
    data: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refusal("--data", data, "--nodes", "2", "--policy", "private", *arguments)


def test_a_folder_without_the_trace_is_refused(tmp_path: Path) -> None:
    assert "--data wants the folder that holds" in refusal("--data", tmp_path)
