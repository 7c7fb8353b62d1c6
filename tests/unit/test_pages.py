"""What the pages state and the program knows: times, counts, and names of files and tests.

Each row of `PAGES` is a part of a page with the program's own number in it: a number that changes
in the program fails here until the page has it. What a page was measured to say is not here.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import click
import msgspec
import pytest
import yaml

from extender.__main__ import main
from extender.api import units
from extender.api.kinds import GpuNodePoolSpec, GpuProjectSpec
from extender.api.names import API_VERSION
from extender.cli.completion import names as completed
from extender.cli.holdings import agents
from extender.cli.questions.listed import SHARES
from extender.cycle import pace, replica, stage_turns, term
from extender.cycle.commit import moves
from extender.cycle.evictions import beneficiaries, evictor
from extender.cycle.keepers import own_groups, provisioning, ungated, volumes
from extender.cycle.pods import narrow, releaser
from extender.cycle.recovery import repair, scheduler_watch
from extender.cycle.reports import figure_turns, placed, report, wait_events
from extender.dispatch import clusters, turns
from extender.http import room
from extender.kube import recorder
from extender.policy import follow_up
from extender.policy.actions import long_wait_protection
from extender.policy.placement import reservations
from extender.policy.preemption import lost_work, search
from extender.policy.queues import usage
from extender.policy.workloads import budget_deadlines, pending
from extender.scenario.longrun import simulate
from extender.state import budgets, model, refusals
from extender.state.pods import constraints
from extender.usage import books, prices, record
from extender.view import ahead, forecast, forecaster, program, server
from extender.web import answering, people, questions, tables
from extender.web import program as web_program
from gpu_shim.agent import audit, cdi, enforce, holders, options, waits
from gpu_shim.agent import report as agent
from gpu_shim.arbiter.scheduler import scheduler
from gpu_shim.protocol import wire
from tests.unit.convert.accepted import assert_spec
from webhooks import body, claims, jobs, rotation

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
#: Folders of the tree that pages speak of, and files that are not in it: those of a user, a node or
#: another project, and what a command makes.
FOLDERS: Final = ("docs", "examples", "extender", "gpu_shim", "manifests", "tests", "webhooks")
PROGRAMS: Final = ("extender", "gpu_shim", "webhooks")
ELSEWHERE: Final = frozenset(
    {
        "/etc/kubernetes/ballast/scheduler-config.yaml",
        "/etc/kubernetes/manifests/kube-scheduler.yaml",
        "/var/lib/ballast/health.json",
        "build/bench.json",
        "ours.yaml",
        "provisioningrequests.yaml",
    }
)
_FILE: Final = re.compile(r"`([\w./-]+\.(?:py|pyx|yaml|json|md|c|h|toml))(?:::(\w+))?`")
_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_YAML: Final = re.compile(r"^ *```yaml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
#: Lines that begin with a bar, one below the other.
_TABLE: Final = re.compile(r"(?:^[ ]*\|.*\n?)+", re.MULTILINE)
_BAR: Final = re.compile(r"(?<!\\)\|")
_RULE: Final = re.compile(r"[-:| ]+")
_WORDS: Final = {
    1: "one",
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    8: "eight",
    10: "ten",
    12: "twelve",
}
_PARTS: Final = {5: "fifth"}


def option(command: str, name: str) -> float:
    """What the command takes where the flag is not given."""
    (found,) = (each for each in main.commands[command].params if name in each.opts)
    assert isinstance(found, click.Option)
    return float(found.default)  # type: ignore[arg-type]


def minutes(seconds: float) -> str:
    return f"{seconds / 60:g}"


def words(number: float) -> str:
    return _WORDS[int(number)]


def longest_refusal_s(first_s: float) -> float:
    """The longest time for which a node is left out, if the first is `first_s`."""
    refused = refusals.Refusals()
    for _ in range(100):
        refused = refused.after("n", 0, round(first_s))
    return refused.nodes[0].until


#: In no page: the program has another number than the words of the row.
OTHER: Final = "[another number]"
PROSE: Final = (*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")))
BIND_S: Final = option("control", "--bind-timeout")
PAGES: Final = (
    ("autoscaling", f"again after {minutes(provisioning.RETRY_S)} minutes"),
    ("autoscaling", f"no longer entitled to new nodes after {ungated.LOST_S:g} seconds"),
    ("autoscaling", f"looks every {stage_turns.EMPTY_EVERY_S:g} seconds"),
    ("cli", f"at most {agents.MOST_AGENTS} are read"),
    ("cli", "answers within a second" if completed.DEADLINE_S == 1 else OTHER),
    ("decisions", f"(`--cycle-budget`, {option('control', '--cycle-budget'):g} s)"),
    ("decisions", f"at most {follow_up.MOST_ROUNDS} rounds"),
    ("decisions", "After an hour of waiting" if pending.PATIENCE_S == 3600 else OTHER),
    ("decisions", f"nothing from it for {words(long_wait_protection.PROTECTION_S / 3600)} hours"),
    ("decisions", "a day ago counts half" if usage.LATELY_HALF_LIFE_S == 86_400 else OTHER),
    ("decisions", f"ends within the next {words(reservations.LONGEST_S / 3600)} hours"),
    ("decisions", f"at most {words(search.MOST_NODES)} nodes are tried"),
    ("decisions", "for more than a minute" if budget_deadlines.CALM_S == 60 else OTHER),
    ("decisions", f"else of the GpuNodePool ({model.DISRUPTION_BUDGET_S})"),
    ("decisions", f"still exists {model.STUCK_AFTER_S} s after its grace period"),
    ("decisions", f"and {lost_work.RESTART_S} s for the restart"),
    ("decisions", f"`maxTerminationGraceSeconds` ({model.MAX_GRACE_S})"),
    ("decisions", f"The first {budgets.MOST_PER_NAMESPACE} budgets of a namespace"),
    ("decisions", f"Up to {releaser.AT_ONCE} releases are under way"),
    ("decisions", f"Up to {evictor.AT_ONCE} evictions are under way"),
    ("decisions", f"did not run within {beneficiaries.RUNS_WITHIN_S:g} s"),
    ("decisions", f"every {volumes.OPEN_FOR_S:g} s ({volumes.BOUND_FOR_S:g} s for bound claims)"),
    ("dra", f"or with more than {claims.MAX_CLAIMS} claims"),
    ("gpu-shim", "in " + " or ".join(f"`{folder}`" for folder in cdi.FOLDERS) + ": those of"),
    ("gpu-shim", f"for {words(audit.PATIENCE_S)} seconds uses a card"),
    ("gpu-shim", f"above its cap plus {audit.MARGIN_MIB >> 10} GiB"),
    ("gpu-shim", f"deletions with {words(enforce.GRACE_S)} seconds of grace"),
    ("gpu-shim", f"| `--context-mib` | {options.CONTEXT_MIB} |"),
    ("gpu-shim", f"tried again every {holders.RETRY_S:g} s, the card's pods wait"),
    ("gpu-shim", f"the last {waits.KEPT} of each pod"),
    ("gpu-shim", f"{wire.MAX_SLOTS:,} processes ({wire.FEW_SLOTS} with a library"),
    ("gpu-shim", f"not drained {scheduler.SPLIT_NS // 1_000_000} ms after the lease ended"),
    ("gpu-shim", f"once more for {scheduler.PEEK_NS // 1_000_000} ms"),
    ("gpu-shim", f"and so on up to {scheduler.DRAIN_NS // 1_000_000_000} s"),
    ("jobs", f"more than `backoffLimit` pods ({jobs.USUAL_BACKOFF} by default)"),
    ("ledger", f"lease transitions x {term.EPOCHS_PER_LEADER:,} + cycle"),
    ("ledger", f"after {minutes(repair.MARK_AFTER_S)} minutes with a separate write"),
    ("ledger", f"(`--bind-timeout`, {BIND_S:g} s)"),
    ("ledger", f"the last {words(refusals.MAX_NODES)} nodes"),
    (
        "ledger",
        f"left out for {BIND_S:g} s, then {2 * BIND_S:g} s, doubling to"
        f" {minutes(longest_refusal_s(BIND_S))} minutes",
    ),
    ("ledger", f"After {words(refusals.DOUBTFUL_FROM)} refusals nothing is evicted"),
    ("ledger", f"after {scheduler_watch.AWAY_AFTER_S:g} seconds in which nothing was bound"),
    ("ledger", f"is released for {narrow.N_NODES_IN_DOUBT} nodes"),
    ("ledger", f"is freed {moves.KEPT_S} seconds after its pod was seen to be gone"),
    ("ledger", f"and after {minutes(moves.KEPT_IN_ALL_S)} minutes in any case"),
    ("limits", f"of more than {narrow.N_NODES_UNNAMED} GPU nodes"),
    ("limits", f"only on the {words(narrow.N_NODES)} nodes that"),
    (
        "many-clusters",
        f"asks again after {turns.AGAIN_S:g} seconds, {2 * turns.AGAIN_S:g}, and so on up to"
        f" {minutes(turns.MOST_AGAIN_S)} minutes",
    ),
    (
        "many-clusters",
        f"`--answer-within` ({option('dispatch', '--answer-within'):g} s) is skipped for"
        f" {clusters.SILENT_S:g} seconds",
    ),
    ("many-clusters", f"until {turns.ARRIVES_S:g} seconds after Kueue reports"),
    (
        "many-clusters",
        f"the newest {turns.MOST_IN_FLIGHT} with {turns.MOST_BYTES_IN_FLIGHT >> 10} KiB",
    ),
    (
        "many-clusters",
        f"`--reserve-within` ({minutes(option('dispatch', '--reserve-within'))} minutes",
    ),
    ("many-clusters", f"up to {turns.MOST_RESERVE_TIMES} times"),
    ("objects", f"no live pod for {minutes(own_groups.KEPT_S)} minutes"),
    ("objects", f"up to {constraints.MAX_BYTES >> 10} KiB of labels"),
    ("objects", f"a whole number from 1 to {units.MAX_WEIGHT}"),
    ("operations", f"taken longer than {words(replica.DECIDES_WITHIN_S / 60)} minutes"),
    ("operations", f"after {1 / pace.MOST_OF_A_CORE:g} times the CPU time"),
    ("operations", f"after {pace.LONGEST_S:g} seconds at the latest"),
    ("operations", f"at most {figure_turns.FIGURES_PER_S} statuses a second"),
    ("operations", "at most once a second" if report.STATUS_PERIOD_S == 1 else OTHER),
    ("operations", f"({rotation.Schedule().lifetime.days} days, renewed after 60"),
    (
        "operations",
        "an hour later the old CA" if rotation.PREVIOUS_KEPT.seconds == 3600 else OTHER,
    ),
    ("questions", "a minute to bind" if forecast.START_S == 60 else OTHER),
    ("questions", "looks ahead once a minute" if forecaster.EVERY_S == 60 else OTHER),
    ("questions", f"Changes are tried for {words(server.TRIED_S)} seconds"),
    (
        "questions",
        f"up to {ahead.HORIZON_S // 3600} hours and {forecast.MOST_WORKLOADS:,} workloads",
    ),
    ("questions", f"the project's last {forecast.REMEMBERED} such answers"),
    ("questions", f"more than {program.QUICK_S:g} s of CPU"),
    ("questions", f"Deciding ahead takes a {_PARTS[round(1 + program.REST_TIMES)]} of a core"),
    ("reasons", f"waits longer than {wait_events.SETTLE_S:g} seconds"),
    ("reasons", f"the figures have changed (every {minutes(placed.RENEW_S)} minutes)"),
    ("reasons", f"written again every {minutes(wait_events.RENEW_S)} minutes"),
    (
        "reasons",
        f"after {turns.AGAIN_S:g} seconds at first and after {minutes(turns.MOST_AGAIN_S)} minutes",
    ),
    ("reasons", f"at most {placed.WRITES_PER_LOOK} such conditions a second, and"),
    ("reasons", f"and {placed.WRITES_WHILE_BUSY} while it releases pods"),
    ("reasons", f"a separate limit of {recorder.EventRates().per_s:g} a second"),
    ("runbooks", f"at most {room.WAIT_S:g} s, while {room.AT_ONCE} binds are under way"),
    ("simulate", f"a cycle runs every {simulate.CYCLE_S} seconds"),
    ("threats", f"more than {body.MAX_OBJECT >> 20} MiB of JSON"),
    ("usage", f"kept for {books.KEPT_DAYS} days"),
    ("usage", f"at most {record.MAX_LINES} lines"),
    ("usage", f"the last {books.PERIOD_S + books.SETTLE_S:g} s before the controller is killed"),
    ("usage", f"more than {books.SETTLE_S} s late"),
    ("usage", f"takes effect up to {books.PERIOD_S + books.SETTLE_S:g} s late"),
    ("usage", f"plus {lost_work.RESTART_S} s for each restart"),
    ("web", f"up to {questions.MOST_NAMESPACES} projects' namespaces"),
    ("web", f"{words(people.MOST_SHOWN).capitalize()} namespaces are shown at once"),
    ("web", f"pages of {tables.ROWS} rows"),
    ("web", f"a random token of {8 * web_program.TOKEN_BYTES} bits"),
    ("web", f"looked at every {answering.EVERY_S:g} seconds"),
)


@pytest.mark.parametrize(("page", "says"), PAGES)
def test_a_page_says_the_programs_number(page: str, says: str) -> None:
    text = " ".join((DOCS / f"{page}.md").read_text("utf-8").split())
    assert says in text


#: What a page tells people to look for in a program's log.
LOGGED: Final = (
    ("gpu-shim", "could not end a container without the library"),
    ("operations", "starting anew"),
    ("runbooks", "certificate not checked"),
    ("runbooks", "cycle broke"),
    ("runbooks", "cycle failed"),
    ("operations", "evicted pod"),
    ("operations", "released pod"),
    ("runbooks", "evicted pod"),
    ("runbooks", "usage was not written"),
)


@pytest.mark.parametrize(
    "condition",
    [
        agent.CARDS_DELIVERABLE,
        agent.CARDS_HEALTHY,
        agent.CARDS_MAPPED,
        agent.DRIVER_KNOWN,
        agent.PODS_WITHIN_BOUNDS,
        agent.RUNTIME_CONNECTED,
    ],
)
def test_the_page_of_the_node_names_the_conditions_of_its_gpu_node(condition: str) -> None:
    assert f"`{condition}`" in (DOCS / "gpu-shim.md").read_text("utf-8")


@pytest.mark.parametrize(("page", "line"), LOGGED)
def test_a_line_that_a_page_looks_for_is_logged(page: str, line: str) -> None:
    assert f"`{line}`" in (DOCS / f"{page}.md").read_text("utf-8")
    logged = re.compile(rf'log\.(?:info|warning|error|exception)\(\s*"{line}"')
    sources = (file for each in PROGRAMS for file in (ROOT / each).rglob("*.py"))
    assert any(logged.search(file.read_text("utf-8")) for file in sources)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    for path, name in _FILE.findall(page.read_text("utf-8")):
        if path in ELSEWHERE:
            continue
        found = [file for file in _files() if file == path or file.endswith(f"/{path}")]
        assert found, path
        if name:
            words = rf"\b{name}\b"
            assert any(re.search(words, (ROOT / each).read_text("utf-8")) for each in found), name


def _examples(page: Path) -> Iterator[dict[str, Any]]:
    """The YAML documents of a page that are mappings."""
    for block in _YAML.findall(page.read_text("utf-8")):
        for document in yaml.safe_load_all(dedent(block)):
            if isinstance(document, dict):
                yield document


def _specs(page: Path) -> Iterator[tuple[str, Any]]:
    """Kind and spec of each example of our kinds; of some, a page shows fields of the spec only."""
    parts = (("GpuNodePool", GpuNodePoolSpec), ("GpuProject", GpuProjectSpec))
    for document in _examples(page):
        if document.get("apiVersion") == API_VERSION:
            yield document["kind"], document["spec"]
            continue
        for kind, struct in parts:
            if document.keys() <= {each.encode_name for each in msgspec.structs.fields(struct)}:
                rest = {"department": "research"} if kind == "GpuProject" else {}
                yield kind, rest | document


def test_examples_of_our_kinds_are_accepted() -> None:
    specs = [(page.stem, *each) for page in PROSE for each in _specs(page)]
    for page, kind, spec in specs:
        assert_spec(kind, spec)
        assert spec, page
    assert {(page, kind) for page, kind, _ in specs} >= {
        ("README", "GpuProject"),
        ("autoscaling", "GpuNodePool"),
        ("objects", "GpuPodGroup"),
        ("objects", "GpuProject"),
        ("objects", "GpuTopology"),
        ("usage", "GpuProject"),
    }


def test_the_columns_that_quota_owners_compare_are_printed() -> None:
    section = (DOCS / "leads.md").read_text("utf-8").partition("\n## Why does another team")[2]
    named = set(re.findall(r"`([A-Z][A-Z ]+)`", section.partition("\n## ")[0]))
    assert named == {"QUOTA", "WAITING", "FAIR SHARE", "HELD"}
    assert named <= {each.name for each in SHARES.columns}


def test_the_example_of_prices_is_read(tmp_path: Path) -> None:
    page = (DOCS / "usage.md").read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n(currency:.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "prices.yaml").write_text(text)
    read = prices.read_prices(tmp_path / "prices.yaml")
    assert read.per_hour("NVIDIA-H100-80GB-HBM3", is_over_quota=True) == Decimal("1.50")
    assert read.per_hour("another", is_over_quota=True) == Decimal("0.70")
    assert read.per_hour("another", is_over_quota=False) == Decimal("2.10")


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.stem)
def test_every_table_has_a_header_and_rows_of_its_width(page: Path) -> None:
    for table in _TABLE.findall(_FENCED.sub("", page.read_text("utf-8"))):
        header, *rows = table.splitlines()
        assert rows, f"no rule below: {header}"
        assert _RULE.fullmatch(rows[0]), f"no header above: {header}"
        n_bars = len(_BAR.findall(header))
        assert not [row for row in rows if len(_BAR.findall(row)) != n_bars]


@cache
def _files() -> tuple[str, ...]:
    """Every file of the tree, by its path below the root."""
    below = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.is_file())
    return tuple(str(file.relative_to(ROOT)) for file in (*below, *ROOT.glob("*")))
