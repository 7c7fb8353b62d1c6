"""JupyterHub as a process beside a control plane.

Its pods run no notebook server, and no proxy is in front of the hub: a stand-in on loopback answers
for them.
"""

import http.client
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.jupyterhub import PROGRAMS
from tests.support.neighbour import Neighbour

READY_S: Final = 90.0
ANSWER_S: Final = 60.0
TOKEN: Final = "token-of-the-tests"
SCOPES: Final = ("admin:users", "admin:servers", "list:users", "read:hub")


class _StandIn(BaseHTTPRequestHandler):
    """Answers for every notebook server, and for the API of the proxy, which routes nothing."""

    def do_GET(self) -> None:
        self._answer(200, b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(201, b"")

    def do_DELETE(self) -> None:
        self._answer(204, b"")

    def _answer(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name in the base)
        pass


class JupyterHub(Neighbour):
    """One hub, with the administrator's rights; `spawner` is configuration of KubeSpawner."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, **spawner: Any) -> None:
        self._plane = plane
        self._port = free_port()
        self._others = ThreadingHTTPServer((LOOPBACK, 0), _StandIn)
        hub = {
            "spawner_class": "kubespawner.KubeSpawner",
            "authenticator_class": "dummy",
            "allow_named_servers": True,
            "hub_bind_url": f"http://{LOOPBACK}:{self._port}",
            "db_url": f"sqlite:///{folder / 'hub.sqlite'}",
            "cookie_secret_file": str(folder / "cookie"),
            "tornado_settings": {"slow_spawn_timeout": 1},
            "services": [{"name": "tests", "api_token": TOKEN}],
            "load_roles": [{"name": "tests", "services": ["tests"], "scopes": list(SCOPES)}],
        }
        config = {
            "JupyterHub": hub,
            "DummyAuthenticator": {"allow_all": True},
            "ConfigurableHTTPProxy": {
                "should_start": False,
                "auth_token": TOKEN,
                "api_url": f"http://{LOOPBACK}:{self._others.server_port}",
            },
            "KubeSpawner": {
                "namespace": namespace,
                "image": "example.invalid/notebook",
                "ip": LOOPBACK,
                "port": self._others.server_port,
                "pod_connect_ip": LOOPBACK,
                "poll_interval": 1,
            }
            | spawner,
        }
        path = folder / "jupyterhub_config.json"
        path.write_text(json.dumps(config), "utf-8")
        argv = [str(PROGRAMS.path("jupyterhub")), f"--config={path}"]
        log = Path(os.environ.get("BALLAST_JUPYTERHUB_LOG", plane.logs / "jupyterhub.log"))
        self._process = Process(
            "jupyterhub", argv, log, os.environ | {"KUBECONFIG": plane.kubeconfig}
        )

    def start(self) -> None:
        """Start it; returns when it is ready."""
        threading.Thread(target=self._others.serve_forever, daemon=True).start()
        self._start()

    def restart(self) -> None:
        """Kill it and start it again; its database stays."""
        self._process.kill()
        self._start()

    def _start(self) -> None:
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._port, "/hub/health", is_tls=False), READY_S
        )

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._others.shutdown()
        self._others.server_close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """The status and the text of an answer of the hub's API."""
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=ANSWER_S)
        headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
        try:
            text = "" if body is None else json.dumps(body)
            connection.request(method, f"/hub/api/{path}", text, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def culler(self, folder: Path, *options: str) -> Process:
        """The program that stops idle servers; the caller starts and ends it."""
        url = f"--url=http://{LOOPBACK}:{self._port}/hub/api"
        argv = [str(PROGRAMS.path("python")), "-m", "jupyterhub_idle_culler", url, *options]
        env = os.environ | {"JUPYTERHUB_API_TOKEN": TOKEN}
        return Process("culler", argv, folder / "culler.log", env)

    def spawn(self, user: str, server: str = "", **options: Any) -> None:
        """A user starts a server; returns once the hub has begun to spawn it."""
        self.ask("POST", f"users/{user}")
        where = f"users/{user}/servers/{server}" if server else f"users/{user}/server"
        status, text = self.ask("POST", where, options)
        assert status in (201, 202), f"{status}: {text}"

    def servers(self, user: str) -> dict[str, Any]:
        """The servers of the user, by name."""
        _, text = self.ask("GET", f"users/{user}")
        return dict(json.loads(text)["servers"])

    def progress(self, user: str) -> list[dict[str, Any]]:
        """What the page shows while the server starts, once it has started or failed."""
        _, text = self.ask("GET", f"users/{user}/server/progress")
        lines = (line for line in text.splitlines() if line.startswith("data: "))
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    def read_log(self) -> str:
        """The hub's log."""
        return self._process.log_path.read_text("utf-8")
