"""Debian's Prometheus and Alertmanager as processes on loopback, with our rules."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process

MONITORING = Path(__file__).parents[3] / "manifests" / "overlays" / "monitoring"
READY_S = 90.0
TIMEOUT_S = 60.0


def program(name: str) -> str:
    """Its path; skips the test where the packages are not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}: install Debian's prometheus and prometheus-alertmanager")
    return path


def rule_groups() -> list[Any]:
    """The groups of our PrometheusRule."""
    (rule,) = yaml.safe_load_all((MONITORING / "alerts.yaml").read_text("utf-8"))
    groups: list[Any] = rule["spec"]["groups"]
    return groups


def rules(kind: str) -> list[Any]:
    """Our rules of this kind: `alert` or `record`."""
    return [each for group in rule_groups() for each in group["rules"] if kind in each]


def write_rules(folder: Path, *, is_patient: bool = True) -> Path:
    """A file that Prometheus loads; not `is_patient`: alerts do not wait for their time."""
    groups = rule_groups()
    for each in (rule for group in groups for rule in group["rules"]):
        if not is_patient:
            each.pop("for", None)
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups}), "utf-8")
    return path


class Monitoring:
    """Prometheus, which scrapes these targets every second, and its Alertmanager."""

    def __init__(self, port: int, alertmanager_port: int) -> None:
        self.port = port
        self._alertmanager_port = alertmanager_port

    def query(self, expr: str) -> list[Any]:
        """The series of an instant query."""
        query = urllib.parse.urlencode({"query": expr})
        found: list[Any] = _get(f"http://{LOOPBACK}:{self.port}/api/v1/query?{query}")["data"][
            "result"
        ]
        return found

    def alerts(self) -> list[Any]:
        """What Alertmanager was told."""
        found: list[Any] = _get(f"http://{LOOPBACK}:{self._alertmanager_port}/api/v2/alerts")
        return found


@contextmanager
def monitoring(folder: Path, targets: Mapping[str, Sequence[int]]) -> Iterator[Monitoring]:
    """Both programs with our rules; `targets` are ports on loopback by job."""
    port, other = free_port(), free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(write_rules(folder, is_patient=False))],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"{LOOPBACK}:{other}"]}]}]},
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": [f"{LOOPBACK}:{each}" for each in ports]}],
            }
            for job, ports in targets.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), "utf-8")
    receiver = {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(receiver), "utf-8")
    processes = [
        Process(
            "alertmanager",
            [
                program("prometheus-alertmanager"),
                f"--config.file={folder / 'alertmanager.yaml'}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address={LOOPBACK}:{other}",
                "--cluster.listen-address=",
            ],
            folder / "alertmanager.log",
        ),
        Process(
            "prometheus",
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{port}",
            ],
            folder / "prometheus.log",
        ),
    ]
    try:
        for process, at in zip(processes, (other, port), strict=True):
            process.start()
            process.wait_until(lambda at=at: is_healthy(at, "/-/ready", is_tls=False), READY_S)  # type: ignore[misc]
        yield Monitoring(port, other)
    finally:
        for process in processes:
            process.kill()


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return json.load(answer)
