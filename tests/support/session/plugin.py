"""Hooks of a test run: distribution over workers, data that workers hand over, and the summary."""

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.session import closing, distribution, used_rights

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling


class _FailuresAtOnce:
    """Prints each failure at once, so that an interrupted run has reported it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the test's name and the last line of its error."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = str(getattr(crash, "message", "")).split("\n", 1)[0]
            reporter.write_line(f"\n{report.nodeid} failed ({report.when}): {said:.200}")


def pytest_configure(config: pytest.Config) -> None:
    """Report failures in the main process, not on workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collection, and exempt them from it afterwards.

    Modules, tests and cases stay until the end of the run. Scanning them took half of the CPU time
    of a collection (9.6 of 18.9 s on a fresh tree), on every worker.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests for a distributed run if there are several workers."""
    if hasattr(config, "workerinput"):
        places = distribution.places([item.nodeid for item in items])
        items.sort(key=lambda item: places[item.nodeid])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Distribute tests by `distribution`."""
    return distribution.scheduler(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Judge the whole run; a worker hands over its data instead."""
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["lines"] = closing.lines(config)
        output["uses"] = used_rights.sent_uses(config)
        return
    if not used_rights.is_whole(config):
        return
    wrong = used_rights.faults(config)
    for line in wrong:
        closing.add_line(config, f"RIGHTS: {line}")
    if wrong and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if not wrong:
        closing.add_line(config, "rights: what is granted is what was used")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Receive the data of a worker that ended; one that crashed has none."""
    output = getattr(node, "workeroutput", {})
    for line in output.get("lines", []):
        closing.add_line(node.config, line)
    used_rights.receive_uses(node.config, output.get("uses", []))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the lines below the results."""
    for line in closing.lines(config):
        terminalreporter.write_line(line)
