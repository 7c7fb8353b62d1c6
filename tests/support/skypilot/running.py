"""SkyPilot's API server and its command `sky` as processes beside a control plane.

Nothing runs in the pods of the tests, so a launch ends with an error at the first command that
SkyPilot wants to run in them.
"""

import contextlib
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.ports import free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.neighbour import Neighbour
from tests.support.skypilot import PROGRAMS

READY_S: Final = 120.0
COMMAND_S: Final = 180.0
#: What SkyPilot downloads of the models of cards and of its images.
CATALOGS: Final = {
    "common/accelerators.csv": "AcceleratorName,Clouds\nA100,\"['Kubernetes']\"\n",
    "kubernetes/images.csv": "Tag,Region,ImageId\nnone,,example.invalid/none\n",
}


def _port_of_server() -> int:
    """A free port for the API server. Its queue uses a second port, which SkyPilot computes from
    the first (`sky/server/requests/queues/mp_queue.py`)."""
    while True:
        port = free_port()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", 50000 + (port - 46580 + 11) % 10000))
            return port


class SkyPilot(Neighbour):
    """One API server, with the administrator's rights; `kubernetes` is what a user writes below
    this key of `~/.sky/config.yaml`."""

    def __init__(
        self, plane: ControlPlane, namespace: str, folder: Path, **kubernetes: Any
    ) -> None:
        self._folder, self._namespace, self._plane = folder, namespace, plane
        self._config = {"kubernetes": kubernetes}
        self._port = _port_of_server()
        self._env = os.environ | {
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "NO_COLOR": "1",
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(self._port),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        }
        log = Path(os.environ.get("BALLAST_SKYPILOT_LOG", folder / "skypilot.log"))
        self._process = self._make(log, "api", "start", "--foreground")

    def install(self) -> None:
        """Write what SkyPilot finds in the user's home."""
        home = self._folder / ".sky"
        for name, text in CATALOGS.items():
            path = home / "catalogs" / "v8" / name
            path.parent.mkdir(parents=True)
            path.write_text(text, "utf-8")
        (home / "config.yaml").write_text(json.dumps(self._config), "utf-8")
        kubeconfig = json.loads(Path(self._plane.kubeconfig).read_text("utf-8"))
        kubeconfig["contexts"][0]["context"]["namespace"] = self._namespace
        (self._folder / "kubeconfig").write_text(json.dumps(kubeconfig), "utf-8")

    def start(self) -> None:
        """Start it; returns when it is ready and has found the cluster."""
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._port, "/api/health", is_tls=False), READY_S
        )
        self.sky("check", "kubernetes")

    def stop(self) -> None:
        """End it and what it started."""
        self.sky("api", "stop")
        super().stop()

    def sky(self, *words: str) -> str:
        """What the command `sky` prints."""
        done = subprocess.run(
            [str(PROGRAMS.path("sky")), *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return done.stdout + done.stderr

    def launch(self, name: str, resources: dict[str, Any], **task: Any) -> Process:
        """`sky launch` of a task as a cluster of this name, as a process that has begun."""
        image = {"image_id": "docker:example.invalid/none"}
        path = self._folder / f"{name}.yaml"
        given = {"run": "true", "resources": image | resources} | task
        path.write_text(json.dumps(given), "utf-8")
        log = self._folder / f"{name}.log"
        launch = self._make(log, "launch", "--yes", f"--cluster={name}", str(path))
        launch.start()
        return launch

    def provision_log(self) -> str:
        """What the API server logs of all launches, as `sky logs --provision` shows."""
        found = sorted(self._folder.glob("sky_logs/*/provision.log"))
        return "\n".join(each.read_text("utf-8") for each in found)

    def _make(self, log: Path, *words: str) -> Process:
        return Process("sky", [str(PROGRAMS.path("sky")), *words], log, self._env)
