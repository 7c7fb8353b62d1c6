"""Dagster: one run of a job with one step, as a process beside a control plane. No Dagster runs in
the pods of the tests."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.process import Process
from tests.support.dagster import PROGRAMS
from tests.support.neighbour import Neighbour

LAUNCH_S: Final = 120.0
#: The step makes a pod with Pipes, and reads no log of it.
PIPES: Final = """
from dagster import PipesTempFileMessageReader, RetryPolicy, job, op
from dagster_k8s import PipesK8sClient

@op(retry_policy=RetryPolicy(max_retries=1, delay=1))
def train(context):
    client = PipesK8sClient(poll_interval=1.0, message_reader=PipesTempFileMessageReader())
    client.run(context=context, **{given!r})

@job
def work():
    train()
"""
#: The step is a Job of `k8s_job_executor`; `given` is its tag `dagster-k8s/config`.
STEPS: Final = """
from dagster import job, op
from dagster_k8s import k8s_job_executor

@op(tags={{"dagster-k8s/config": {given!r}}})
def train():
    pass

@job(executor_def=k8s_job_executor, tags={{"dagster-k8s/config": {given!r}}})
def work():
    train()
"""


class Dagster(Neighbour):
    """One run of the code, with the administrator's rights."""

    def __init__(
        self, plane: ControlPlane, namespace: str, folder: Path, code: str, given: dict[str, Any]
    ) -> None:
        launcher = {
            "service_account_name": "default",
            "job_image": "example.invalid/none",
            "dagster_home": "/opt/dagster",
            "instance_config_map": "none",
            "load_incluster_config": False,
            "kubeconfig_file": plane.kubeconfig,
            "job_namespace": namespace,
        }
        instance = {
            "run_launcher": {
                "module": "dagster_k8s",
                "class": "K8sRunLauncher",
                "config": launcher,
            },
            "run_monitoring": {
                "enabled": True,
                "start_timeout_seconds": 30,
                "poll_interval_seconds": 2,
            },
            "telemetry": {"enabled": False},
        }
        (folder / "dagster.yaml").write_text(json.dumps(instance), "utf-8")
        self._code = folder / "code_of_user.py"
        self._code.write_text(code.format(given=given), "utf-8")
        self._env = os.environ | {"DAGSTER_HOME": str(folder), "KUBECONFIG": plane.kubeconfig}
        self._log = Path(os.environ.get("BALLAST_DAGSTER_LOG", folder / "dagster.log"))
        self._process = self._make("dagster", "job", "execute")

    def read_log(self) -> str:
        """What is logged of the run and its step."""
        return self._log.read_text("utf-8")

    def _words(self, program: str, *words: str) -> list[str]:
        return [str(PROGRAMS.path(program)), *words, f"--python-file={self._code}"]

    def _make(self, program: str, *words: str) -> Process:
        return Process("dagster", self._words(program, *words), self._log, self._env)


class LaunchedDagster(Dagster):
    """The same, and the run itself is a Job that Dagster's launcher makes. The process is
    Dagster's daemon, which watches it."""

    def start(self) -> None:
        """Launch the run, and start the daemon."""
        words = self._words("dagster", "job", "launch")
        subprocess.run(words, env=self._env, check=True, capture_output=True, timeout=LAUNCH_S)
        self._process = self._make("dagster-daemon", "run")
        self._process.start()

    def stop(self) -> None:
        """End the daemon and the processes that it started."""
        self._process.end(10)
