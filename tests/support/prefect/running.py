"""Prefect's server and one worker for Kubernetes as processes beside a control plane. No flow runs
in the pods of the tests."""

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.neighbour import Neighbour
from tests.support.prefect import PROGRAMS

READY_S: Final = 120.0
COMMAND_S: Final = 120.0
POOL: Final = "gpus"


class Prefect(Neighbour):
    """A server with a work pool, and its worker with the administrator's rights."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self._namespace, self._folder = namespace, folder
        self._port = free_port()
        self._api = f"http://{LOOPBACK}:{self._port}/api"
        self._env = os.environ | {
            "DO_NOT_TRACK": "1",
            "KUBECONFIG": plane.kubeconfig,
            "PREFECT_API_URL": self._api,
            "PREFECT_HOME": str(folder),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        log = Path(os.environ.get("BALLAST_PREFECT_LOG", folder / "server.log"))
        where = (f"--host={LOOPBACK}", f"--port={self._port}")
        self._server = self._make(log, "server", "start", *where)
        self._process = self._make(
            folder / "worker.log", "worker", "start", f"--pool={POOL}", "--type=kubernetes"
        )

    def start(self) -> None:
        """Start the server, make the work pool, and start the worker."""
        self._server.start()
        self._server.wait_until(
            lambda: is_healthy(self._port, "/api/health", is_tls=False), READY_S
        )
        path = self._folder / "template.json"
        path.write_text(json.dumps(self._template()), "utf-8")
        kind = ("--type=kubernetes", f"--base-job-template={path}")
        self._run("work-pool", "create", POOL, *kind)
        super().start()

    def stop(self) -> None:
        """End both."""
        super().stop()
        self._server.kill()

    def submit(self, name: str, **variables: Any) -> str:
        """The id of a flow run with these variables of the job template."""
        flow = self._ask("POST", "flows/", {"name": name})
        where = {"namespace": self._namespace, "image": "example.invalid/none"}
        deployment = {
            "name": name,
            "flow_id": flow["id"],
            "work_pool_name": POOL,
            "entrypoint": "flow.py:train",
            "path": "/",
            "job_variables": where | variables,
        }
        made = self._ask("POST", "deployments/", deployment)
        run = self._ask("POST", f"deployments/{made['id']}/create_flow_run", {})
        return str(run["id"])

    def state(self, run: str) -> dict[str, Any]:
        """The state of a flow run."""
        return dict(self._ask("GET", f"flow_runs/{run}")["state"])

    def cancel(self, run: str) -> None:
        """As a user does on the page of the flow run."""
        state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
        self._ask("POST", f"flow_runs/{run}/set_state", state)

    def _template(self) -> Any:
        """The job template of Prefect, with a variable for GPUs."""
        words = ("get-default-base-job-template", "--type", "kubernetes")
        template = json.loads(self._run("work-pool", *words))
        pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
        pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "{{ gpus }}"
        template["variables"]["properties"]["gpus"] = {"type": "integer", "title": "GPUs"}
        return template

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        text = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._api}/{path}", text, headers, method=method)
        with urllib.request.urlopen(request, timeout=COMMAND_S) as answer:
            return json.load(answer)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [str(PROGRAMS.path("prefect")), *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=True,
        )
        return done.stdout

    def _make(self, log: Path, *words: str) -> Process:
        return Process("prefect", [str(PROGRAMS.path("prefect")), *words], log, self._env)
