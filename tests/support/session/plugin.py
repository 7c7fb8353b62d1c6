"""Hooks of a whole run: who runs what, what workers hand over, and what is said at the end."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.session import closing, distribution, used_rights

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling


class _FailuresAtOnce:
    """Names each test that fails when it fails: a run that is cut short has said what it knew."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the test's name and the last line of what it raised."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = str(getattr(crash, "message", "")).split("\n", 1)[0]
            reporter.write_line(f"\n{report.nodeid} failed ({report.when}): {said:.200}")


def pytest_configure(config: pytest.Config) -> None:
    """Follow the run where it is shown, not on workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests in the order of a distributed run where several workers share it."""
    if hasattr(config, "workerinput"):
        places = distribution.places([item.nodeid for item in items])
        items.sort(key=lambda item: places[item.nodeid])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Hand out tests as `distribution` says."""
    return distribution.scheduler(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Judge what is judged over the whole run; a worker hands over what it saw instead."""
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
    """Take what a worker that ended hands over; one that crashed has nothing."""
    output = getattr(node, "workeroutput", {})
    for line in output.get("lines", []):
        closing.add_line(node.config, line)
    used_rights.receive_uses(node.config, output.get("uses", []))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show the lines."""
    for line in closing.lines(config):
        terminalreporter.write_line(line)
