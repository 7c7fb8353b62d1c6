"""Implementation of `ballast preflight`: reads facts of a cluster, checks and prints them."""

from typing import Final

import msgspec

from extender.cli.ask import ask
from extender.cli.terminal.exits import BAD
from extender.cli.terminal.flags import How, Where
from extender.cli.terminal.output import wide_console
from extender.cli.terminal.show import WIDTH, echo_data, print_table, safe, table_of
from extender.preflight.cluster import check_cluster
from extender.preflight.facts import Facts, FactsReader
from extender.preflight.findings import PreflightFinding, State
from extender.preflight.nodes import check_nodes
from extender.preflight.workloads import check_workloads

_COLUMNS: Final = ("", "CHECK", "FOUND", "WHAT TO DO")
_COLOURS: Final = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}


def check(where: Where, namespaces: tuple[str, ...], how: How) -> None:
    """Print all findings; exits with 1 if any check fails."""
    findings = judge(ask(where, lambda client: FactsReader(client).read(namespaces)))
    listed = {"checks": msgspec.to_builtins(findings)}
    if not echo_data(how.output, listed):
        print_findings(findings, no_headers=how.no_headers)
    if any(each.state is State.FAIL for each in findings):
        raise SystemExit(BAD)


def judge(facts: Facts) -> list[PreflightFinding]:
    """All findings, the worst first."""
    order = list(reversed(State))
    found = [*check_cluster(facts), *check_nodes(facts), *check_workloads(facts)]
    return sorted(found, key=lambda each: order.index(each.state))


def print_findings(findings: list[PreflightFinding], *, no_headers: bool) -> None:
    """In a pipe one line for each finding; on a terminal the advice is below what was found."""
    is_terminal = wide_console(WIDTH).is_terminal
    names = ("", "CHECK", "FOUND, AND WHAT TO DO") if is_terminal else _COLUMNS
    table = table_of(names, no_headers=no_headers)
    for each in findings:
        colour = _COLOURS[each.state]
        state = f"[{colour}]{each.state.value}[/{colour}]"
        found, advice = safe(each.found), safe(each.advice)
        words = (f"{found}\n{advice}".rstrip(),) if is_terminal else (found, advice)
        table.add_row(state, safe(each.check), *words)
    for column in table.columns[:2]:
        column.no_wrap = True
    print_table(table)
