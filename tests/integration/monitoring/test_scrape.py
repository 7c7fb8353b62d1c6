"""A running installation, scraped by Debian's Prometheus: all rules and dashboards have data."""

import asyncio
import re
from pathlib import Path
from typing import Final

from manifests.boards.boards import BOARDS
from tests.integration.cycle.two_projects import Scene
from tests.integration.monitoring.prometheus import Monitoring, monitoring, program, rules
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster

#: Metrics of rules that no program of this installation has.
ELSEWHERE: Final = {
    "apiserver_admission_webhook_fail_open_count",  # only once the webhooks did not answer
    "ballast_gpu_card_healthy",  # of the node agent
    "ballast_webhook_certificate_expires_timestamp_seconds",  # of the webhooks
    "kube_job_status_active",  # of kube-state-metrics
    "kube_job_status_failed",
}
ALL_OF: Final = {"$project": ".*", "$pool": ".*"}


async def test_every_expression_of_rules_and_boards_returns_data(
    cluster: Cluster, audited: Auditor, tmp_path: Path
) -> None:
    program("prometheus")
    async with Scene.open(cluster, n_nodes=2, cards=2, usage_s=1.0) as scene:
        ports = {
            "control": [scene.installation.control.port],
            "serve": [scene.installation.serve.port],
        }
        with monitoring(tmp_path, ports) as seen:
            scene.set_budget("team-a", 1000)
            scene.submit_job("team-a", "loan", 4, 1000)
            await scene.until_bound("team-a", 4)
            scene.submit_job("team-b", "owner", 2, 1000)
            await scene.until_bound("team-b", 2)
            await scene.until(lambda: without_data(seen) == [], "every panel to have data")
            await scene.until(lambda: missing_metrics(seen) == [], "every metric of a rule")
            recorded = [each["record"] for each in rules("record")]
            await scene.until(lambda: all(map(seen.query, recorded)), "every recorded series")
            alert = "BallastHasNoLeader"
            await scene.until(lambda: alert not in names_of(seen), "no alert while one decides")
            await audited.finish()
            # An alert goes all the way: nothing decides any more.
            await asyncio.to_thread(scene.installation.control.kill)
            await scene.until(lambda: alert in names_of(seen), "the alert")
            (told,) = [each for each in seen.alerts() if each["labels"]["alertname"] == alert]
            assert told["annotations"]["runbook"] == "docs/runbooks.md#ballasthasnoleader"


def without_data(seen: Monitoring) -> list[str]:
    """Panels of which an expression returns nothing."""
    return [
        f"{board.title}: {panel.title}: {query.expr}"
        for board in BOARDS
        for panel in board.panels
        for query in panel.queries
        if not seen.query(_chosen(query.expr))
    ]


def missing_metrics(seen: Monitoring) -> list[str]:
    """Metrics of rules that were never scraped."""
    said = {
        name
        for each in rules("alert")
        for name in re.findall(r"(?<![\w:$])(?:ballast|kube|apiserver)_\w+", each["expr"])
    }
    return sorted(each for each in said - ELSEWHERE if not seen.query(each))


def names_of(seen: Monitoring) -> set[str]:
    """Alerts that Alertmanager has."""
    return {each["labels"]["alertname"] for each in seen.alerts()}


def _chosen(expr: str) -> str:
    for variable, value in ALL_OF.items():
        expr = expr.replace(variable, value)
    return expr
