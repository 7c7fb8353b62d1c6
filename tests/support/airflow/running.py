"""Airflow: one run of a DAG with one KubernetesPodOperator, as a process beside a control plane.

`airflow dags test` runs the DAG with its retries and triggers in one process, without Airflow's
scheduler and web server.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.support.airflow import PROGRAMS
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.process import Process
from tests.support.neighbour import Neighbour

MIGRATE_TIMEOUT_S: Final = 300.0
DAY: Final = "2026-01-01"
DAG: Final = """
import json
from datetime import datetime, timedelta
from airflow.sdk import DAG
from airflow.providers.cncf.kubernetes.operators.{module} import {operator} as Operator

with DAG("train", schedule=None, start_date=datetime(2026, 1, 1)):
    Operator(
        task_id="train",
        name="train",
        in_cluster=False,
        get_logs=False,
        retry_delay=timedelta(seconds=1),
        **json.loads({given!r}),
    )
"""


class Airflow(Neighbour):
    """One run, with the administrator's rights; `given` are arguments of the operator."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        operator: str = "KubernetesPodOperator",
        **given: Any,
    ) -> None:
        dags = folder / "dags"
        dags.mkdir(exist_ok=True)
        module = "pod" if operator == "KubernetesPodOperator" else "job"
        text = DAG.format(module=module, operator=operator, given=json.dumps(given))
        (dags / "train.py").write_text(text, "utf-8")
        self._env = os.environ | {
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes"}),
            "KUBECONFIG": plane.kubeconfig,
        }
        self._log = Path(os.environ.get("BALLAST_AIRFLOW_LOG", folder / "airflow.log"))
        self._process = self._make("dags", "test", "train", DAY)

    def install(self) -> None:
        """Make its database."""
        argv = [str(PROGRAMS.path("airflow")), "db", "migrate"]
        subprocess.run(
            argv, env=self._env, check=True, capture_output=True, timeout=MIGRATE_TIMEOUT_S
        )

    def take_over(self) -> None:
        """Kill it, and run the task of the same DAG run again, as another worker would."""
        self._process.kill()
        found = re.search(r"manual__[0-9T:.+-]+", self.read_log())
        assert found, "the run has begun"
        self._process = self._make("tasks", "test", "train", "train", found[0])
        self._process.start()

    def _make(self, *words: str) -> Process:
        return Process("airflow", [str(PROGRAMS.path("airflow")), *words], self._log, self._env)

    def read_log(self) -> str:
        """What the run and its tasks log."""
        return self._log.read_text("utf-8")
