"""The summary of a run, in one process and on several workers, with a small test suite."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.session import plugin, used_rights

CONFTEST = """
import pytest
from pathlib import Path
from tests.support.session import used_rights
from tests.support.session.closing import add_line

pytest_plugins = ["tests.support.session.plugin"]
HERE = Path(__file__).parent
used_rights.INTEGRATION = HERE / "tests" / "integration"

@pytest.fixture(scope="session")
def plane(request):
    yield
    add_line(request.config, "logs kept")
    used_rights.remember_uses(request.config, HERE)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("ix", range(8))
def test_it(plane, ix):
    if ix < 3:
        pytest.skip("no such program")
"""
#: A request by one of our programs with a right that no manifest of ours grants.
UNGRANTED = (
    '{"user": {"username": "system:serviceaccount:ballast-system:ballast-control"},'
    ' "userAgent": "ballast-control/1", "verb": "delete", "objectRef": {"resource": "nodes"}}\n'
)


def run(folder: Path, n_workers: int, *options: str, tests: str = TESTS) -> tuple[int, str]:
    """Exit status and output of the small suite."""
    module = folder / "tests" / "unit" / "test_it.py"
    module.parent.mkdir(parents=True)
    (folder / "tests" / "integration").mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    module.write_text(tests)
    argv = [sys.executable, "-m", "pytest", "-rs", f"-n{n_workers}", f"--rootdir={folder}"]
    done = subprocess.run(
        [*argv, "-p", "no:cacheprovider", *options, "tests"],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_lines_skips_and_rights_of_every_worker_are_judged_and_shown(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_text(UNGRANTED)

    # As `make test` calls it.
    status, said = run(tmp_path, 2, "-m", used_rights.USUAL)

    assert "SKIPPED [3]" in said
    assert "no such program" in said
    assert "5 passed, 3 skipped" in said
    assert said.count("logs kept") == 2
    assert (
        "RIGHTS: used and not granted: ballast-control as ballast-system:ballast-control: " in said
    )
    assert "RIGHTS: granted and not used: " in said
    assert status == 1


def test_a_part_of_the_suite_says_nothing_about_rights(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_text(UNGRANTED)

    status, said = run(tmp_path, 0, "-k", "test_it")

    assert "logs kept" in said
    assert "RIGHTS" not in said
    assert status == 0


def test_a_test_that_fails_is_named_at_once(tmp_path: Path) -> None:
    status, output = run(tmp_path, 2, tests=TESTS + '    assert ix != 3, "the cause"\n')
    assert status == 1
    shown, summary = output.split("FAILURES", 1)
    assert "tests/unit/test_it.py::test_it[3] failed (call): AssertionError: the cause" in shown
    assert "the cause" in summary


def test_what_is_collected_is_exempt_from_garbage_collection() -> None:
    collection = plugin.pytest_collection()
    next(collection)
    assert not gc.isenabled()
    with pytest.raises(StopIteration):
        next(collection)
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
