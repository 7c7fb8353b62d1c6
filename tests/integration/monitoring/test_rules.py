"""Every rule in Debian's promtool: it is valid and fires exactly when it should."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.integration.monitoring.prometheus import program, rules, write_rules

Series = dict[str, str]


def _evictions(project: str, beneficiary: str) -> str:
    labels = f'project="{project}",beneficiary="{beneficiary}",reason="Reclaimed"'
    return f"ballast_control_evicted_pods_total{{{labels}}}"


def _hours(figure: str) -> str:
    return f'ballast_queue_month_{figure}_gpu_hours{{queue="a",node_pool="p"}}'


#: Far more than it takes on a busy machine: it only ends a promtool that hangs.
PROMTOOL_S = 300

#: Alert -> (series that fire it, series that do not), a sample a minute for two hours.
CASES: dict[str, tuple[Series, Series]] = {
    "BallastHasNoLeader": (
        {'ballast_control_is_leader{pod="a"}': "0x120"},
        {
            'ballast_control_is_leader{pod="a"}': "0x120",
            'ballast_control_is_leader{pod="b"}': "1x120",
        },
    ),
    "BallastCyclesFail": (
        {
            'ballast_control_cycles_total{result="done"}': "0+10x120",
            'ballast_control_cycles_total{result="failed"}': "0+5x120",
        },
        {
            'ballast_control_cycles_total{result="done"}': "0+2x120",
            'ballast_control_cycles_total{result="unchanged"}': "0+28x120",
            'ballast_control_cycles_total{result="failed"}': "0+1x120",
        },
    ),
    "BallastCyclesExceedTheirBudget": (
        {"ballast_control_cut_workloads": "3x120"},
        {"ballast_control_cut_workloads": "3x10 0x110"},
    ),
    "BallastCacheIsStale": (
        {"ballast_kube_reflector_heard_timestamp_seconds": "0x120"},
        {"ballast_kube_reflector_heard_timestamp_seconds": "0+60x120"},
    ),
    "BallastExtenderFails": (
        {
            'ballast_extender_requests_total{verb="bind",result="done"}': "0+10x120",
            'ballast_extender_requests_total{verb="bind",result="failed"}': "0+1x120",
        },
        {'ballast_extender_requests_total{verb="bind",result="done"}': "0+10x120"},
    ),
    "BallastExtenderIsSlow": (
        {
            'ballast_extender_request_duration_seconds_bucket{verb="bind",le="1"}': "0x120",
            'ballast_extender_request_duration_seconds_bucket{verb="bind",le="5"}': "0+9x120",
            'ballast_extender_request_duration_seconds_bucket{verb="bind",le="+Inf"}': "0+9x120",
        },
        {
            'ballast_extender_request_duration_seconds_bucket{verb="bind",le="1"}': "0+9x120",
            'ballast_extender_request_duration_seconds_bucket{verb="bind",le="+Inf"}': "0+9x120",
        },
    ),
    "BallastBindsTimeOut": (
        {"ballast_control_revoked_rows_total": "0+2x120"},
        {"ballast_control_revoked_rows_total": "0x60 1x60"},
    ),
    "BallastSchedulerIsDown": (
        {"ballast_control_scheduler_away": "1x120"},
        {"ballast_control_scheduler_away": "0x120"},
    ),
    "BallastProjectIsBelowItsQuota": (
        {
            'ballast_queue_held_gpus{queue="a",node_pool="p"}': "2x120",
            'ballast_queue_quota_gpus{queue="a",node_pool="p"}': "4x120",
            'ballast_queue_owed_gpus{queue="a",node_pool="p"}': "3x120",
        },
        {
            'ballast_queue_held_gpus{queue="a",node_pool="p"}': "2x120",
            'ballast_queue_quota_gpus{queue="a",node_pool="p"}': "4x120",
            'ballast_queue_owed_gpus{queue="a",node_pool="p"}': "2x120",
        },
    ),
    "BallastEvictionsAreUseless": (
        {"ballast_control_useless_evictions_total": "0x60 0+1x60"},
        {"ballast_control_useless_evictions_total": "0x60 3x60"},
    ),
    "BallastPodsHoldGpusWithoutARow": (
        {'ballast_control_foreign_gpus{managed="true"}': "1x120"},
        {'ballast_control_foreign_gpus{managed="false"}': "1x120"},
    ),
    "BallastWebhooksAreDown": (
        {'apiserver_admission_webhook_fail_open_count{name="pods.ballast.dev"}': "0+1x120"},
        {'apiserver_admission_webhook_fail_open_count{name="pods.other.dev"}': "0+1x120"},
    ),
    "BallastCertificateIsNotRenewed": (
        {"ballast_webhook_certificate_expires_timestamp_seconds": "1700000x120"},
        {"ballast_webhook_certificate_expires_timestamp_seconds": "2600000x120"},
    ),
    "BallastWorkCannotStart": (
        {'ballast_queue_pending_workloads{queue="a",reason="UnknownNodePool"}': "1x120"},
        {'ballast_queue_pending_workloads{queue="a",reason="OverFairShare"}': "1x120"},
    ),
    "BallastJobNearsItsBackoffLimit": (
        {
            'kube_job_status_failed{namespace="n",job_name="j"}': "4x120",
            'kube_job_status_active{namespace="n",job_name="j"}': "1x120",
        },
        {
            'kube_job_status_failed{namespace="n",job_name="j"}': "7x120",
            'kube_job_status_active{namespace="n",job_name="j"}': "0x120",
        },
    ),
    "BallastQuotasExceedCapacity": (
        {
            'ballast_queue_quota_gpus{queue="a",node_pool="p"}': "4x120",
            'ballast_queue_quota_gpus{queue="b",node_pool="p"}': "5x120",
            'ballast_pool_gpus{node_pool="p",state="held"}': "8x120",
        },
        {
            'ballast_queue_quota_gpus{queue="a",node_pool="p"}': "4x120",
            'ballast_queue_quota_gpus{queue="department/d",node_pool="p"}': "8x120",
            'ballast_pool_gpus{node_pool="p",state="held"}': "8x120",
        },
    ),
    "BallastProjectsReclaimFromEachOther": (
        {
            _evictions("a", "b"): "0+1x120",
            _evictions("b", "a"): "0+1x120",
        },
        {_evictions("a", "b"): "0+1x120", _evictions("b", "c"): "0+1x120"},
    ),
    "BallastGpusIdleWhileWorkWaits": (
        {
            'ballast_pool_idle_while_waiting_gpu_seconds_total{node_pool="p"}': "0+120x120",
            'ballast_pool_gpus{node_pool="p",state="held"}': "10x120",
        },
        {
            'ballast_pool_idle_while_waiting_gpu_seconds_total{node_pool="p"}': "0+30x120",
            'ballast_pool_gpus{node_pool="p",state="held"}': "10x120",
        },
    ),
    "BallastBudgetIsNearlyUsed": (
        {_hours("used"): "9x120", _hours("budget"): "10x120"},
        {
            _hours("used"): "8x120",
            _hours("budget"): "10x120",
            _hours("used").replace('"a"', '"none"'): "0x120",
            _hours("budget").replace('"a"', '"none"'): "0x120",
        },
    ),
    "BallastUsageRecordsAreBehind": (
        {
            'ballast_usage_counted_to_timestamp_seconds{pod="a"}': "0x120",
            'ballast_usage_counted_to_timestamp_seconds{pod="b"}': "0x120",
        },
        {
            'ballast_usage_counted_to_timestamp_seconds{pod="a"}': "0+60x120",
            'ballast_usage_counted_to_timestamp_seconds{pod="b"}': "0x120",
        },
    ),
    "BallastCardIsUnhealthy": (
        {'ballast_gpu_card_healthy{card="GPU-1"}': "0x120"},
        {'ballast_gpu_card_healthy{card="GPU-1"}': "1x120"},
    ),
}


def test_promtool_understands_every_rule(tmp_path: Path) -> None:
    told = _promtool("check", "rules", str(write_rules(tmp_path)))
    assert f"{len(rules('alert')) + len(rules('record'))} rules found" in told


def test_every_alert_fires_where_it_should_and_only_there(tmp_path: Path) -> None:
    assert CASES.keys() == {each["alert"] for each in rules("alert")}
    files = [_write_cases(tmp_path, each) for each in rules("alert")]
    told = _promtool("test", "rules", *map(str, files))
    assert told.count("SUCCESS") == len(files)


def test_figures_of_cards_are_joined_with_pods_as_the_guide_says(tmp_path: Path) -> None:
    info = 'ballast_gpu_pod_info{{namespace="n",pod="{pod}",card="GPU-{card}",instance="agent"}}'
    used = 'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{card}",instance="dcgm"}}'
    series = {
        info.format(pod="a", card=1): "1",
        info.format(pod="b", card=1): "1",
        info.format(pod="c", card=2): "1",
        used.format(card=1): "70",
        used.format(card=2): "5",
    }
    expr = f"sum by (pod) ({_of_guide('operations', 'label_replace')})"
    _expect(tmp_path, expr, series, {'{pod="a"}': 70, '{pod="b"}': 70, '{pod="c"}': 5})


def _of_guide(page: str, start: str) -> str:
    """The expression that stands in the page and begins so."""
    text = (Path(__file__).parents[3] / "docs" / f"{page}.md").read_text("utf-8")
    (found,) = re.findall(rf"^{start}.*$", text, re.MULTILINE)
    return str(found)


def _expect(folder: Path, expr: str, series: Series, values: dict[str, int]) -> None:
    check = {
        "expr": expr,
        "eval_time": "0",
        "exp_samples": [{"labels": labels, "value": value} for labels, value in values.items()],
    }
    listed = [{"series": name, "values": text} for name, text in series.items()]
    test = {"interval": "1m", "input_series": listed, "promql_expr_test": [check]}
    (folder / "tests.yaml").write_text(yaml.safe_dump({"tests": [test]}), "utf-8")
    assert "SUCCESS" in _promtool("test", "rules", str(folder / "tests.yaml"))


def _write_cases(folder: Path, rule: dict[str, Any]) -> Path:
    """The cases of one alert, with no other alert to evaluate in each of their 120 minutes."""
    alert = rule["alert"]
    own_rules = folder / f"{alert}.rules.yaml"
    group = {"name": alert, "rules": [*rules("record"), rule]}
    own_rules.write_text(yaml.safe_dump({"groups": [group]}), "utf-8")
    tests = [
        _test(alert, series, fires=fires)
        for series, fires in zip(CASES[alert], (True, False), strict=True)
    ]
    cases = folder / f"{alert}.yaml"
    cases.write_text(yaml.safe_dump({"rule_files": [str(own_rules)], "tests": tests}), "utf-8")
    return cases


def _test(alert: str, series: Series, *, fires: bool) -> dict[str, Any]:
    """Whether the alert is firing after two hours."""
    expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0'
    return {
        "name": f"{alert} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": "2h",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def _promtool(*arguments: str) -> str:
    command = [program("promtool"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PROMTOOL_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
