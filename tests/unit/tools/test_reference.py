"""The reference pages are as generated, and the worked page shows the command's output."""

import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from extender.cli.scenarios.scenario import scenario

ROOT = Path(__file__).resolve().parents[3]


def test_reference_pages_are_as_generated() -> None:
    # In a process of its own: the page on metrics imports every module.
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.reference", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_label_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(ballast\.dev/.*)` \|.*\|(.*)\|$", _page("reference/labels.md"), re.M)
    assert len(rows) > 25
    assert [name for name, meaning in rows if not meaning.strip()] == []


def test_every_name_of_the_manifests_is_in_the_reference() -> None:
    listed = set(re.findall(r"^\| `(ballast\.dev/[\w-]+)` ", _page("reference/labels.md"), re.M))
    files = (ROOT / "manifests").glob("*/**/*.yaml")
    used = {
        name
        for file in files
        for name in re.findall(
            r"(?<![\w.])ballast\.dev/[a-zA-Z-]+(?![\w.-])", file.read_text("utf-8")
        )
    }
    assert len(used) > 10
    assert used - listed == set()


def test_every_program_of_an_installation_is_in_the_reference() -> None:
    page = _page("reference/commands.md").split("## Programs of an installation")[1]
    found = set(re.findall(r"^### (.+)$", page, re.M))
    programs = {"ballast control", "ballast serve", "ballast view", "ballast dispatch"}
    assert found == programs | {"python -m webhooks", "python -m gpu_shim"}


def test_every_metric_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(ballast_\w+)` \|.*\|(.*)\|$", _page("reference/metrics.md"), re.M)
    assert len(rows) > 50
    assert [name for name, meaning in rows if not meaning.strip()] == []


def test_every_metric_of_alerts_boards_and_pages_is_in_the_reference() -> None:
    listed = set(re.findall(r"^\| `(ballast_\w+)` ", _page("reference/metrics.md"), re.M))
    folder = ROOT / "manifests" / "overlays" / "monitoring"
    files = [folder / "alerts.yaml", *folder.glob("boards/*.json"), *(ROOT / "docs").glob("*.md")]
    used = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for file in files
        for name in re.findall(r"\bballast_[a-z]\w*[a-z0-9]\b(?![*/.])", file.read_text("utf-8"))
    }
    assert len(used) > 30
    assert used - listed == set()


def test_worked_page_shows_what_the_command_prints() -> None:
    shown = CliRunner().invoke(scenario, ["show", str(ROOT / "examples" / "shares.yaml")])
    assert shown.exit_code == 0, shown.output
    assert shown.output.strip() in _page("fair-share.md")


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")
