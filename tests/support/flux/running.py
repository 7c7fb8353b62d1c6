"""Flux's kustomize-controller as a process beside a control plane.

The source-controller is not run: the artifact of a GitRepository is served from here.
"""

import hashlib
import io
import os
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.flux import PROGRAM, PROGRAMS, definition
from tests.support.open_kinds import open_definition

READY_S: Final = 60.0
SOURCES: Final = "source.toolkit.fluxcd.io"
#: Plurals of the kinds of sources.
SOURCE_KINDS: Final = {
    "GitRepository": "gitrepositories",
    "OCIRepository": "ocirepositories",
    "Bucket": "buckets",
    "ExternalArtifact": "externalartifacts",
}
KUSTOMIZATIONS: Final = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations"
Document = dict[str, Any]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


class Flux:
    """One controller, with the administrator's rights, and the repository that it reads."""

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._work = work / "flux"
        self._served = self._work / "served"
        self._served.mkdir(parents=True)
        handler = partial(_Quiet, directory=str(self._served))
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler)
        self._health_port = free_port()
        argv = [
            str(PROGRAMS.path(PROGRAM)),
            "--metrics-addr=0",
            f"--health-addr={LOOPBACK}:{self._health_port}",
            "--requeue-dependency=1s",
        ]
        log = Path(os.environ.get("BALLAST_FLUX_LOG", plane.logs / f"{PROGRAM}.log"))
        env = os.environ | {"KUBECONFIG": plane.kubeconfig, "TMPDIR": str(self._work)}
        self._process = Process(PROGRAM, argv, log, env)

    def install(self) -> None:
        """Apply the CRDs: its own, and open ones for the kinds that it reads sources from."""
        files = [definition()]
        for kind, plural in SOURCE_KINDS.items():
            files.append(self._work / f"{kind}.yaml")
            made = open_definition(SOURCES, "v1", kind, plural)
            files[-1].write_text(yaml.safe_dump(made))
        apply_kinds(self._plane, files)

    def start(self) -> None:
        """Start it; returns when it is ready."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._server.shutdown()
        self._server.server_close()

    def publish(self, name: str, documents: list[Document]) -> str:
        """The next commit of a repository of this name; returns its revision."""
        content = _archive(documents)
        digest = hashlib.sha256(content).hexdigest()
        (self._served / f"{digest}.tar.gz").write_bytes(content)
        port = self._server.server_port
        revision = f"main@sha256:{digest}"
        artifact = {
            "digest": f"sha256:{digest}",
            "path": f"{digest}.tar.gz",
            "url": f"http://{LOOPBACK}:{port}/{digest}.tar.gz",
            "revision": revision,
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }
        body = {
            "apiVersion": f"{SOURCES}/v1",
            "kind": "GitRepository",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"url": "https://example.invalid/none", "interval": "1h"},
            "status": {"artifact": artifact},
        }
        text = yaml.safe_dump(body)
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=text)
        return revision

    def follow(self, name: str, **spec: Any) -> None:
        """A Kustomization of the repository of this name. It is not ready while it is applied, so
        the pauses are long enough for another that depends on it."""
        whole = {
            "interval": "4s",
            "retryInterval": "1s",
            "timeout": "30s",
            "prune": True,
            "path": "./",
            "sourceRef": {"kind": "GitRepository", "name": name},
        }
        body = {
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "default"},
            "spec": whole | spec,
        }
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=yaml.safe_dump(body))

    def condition(self, name: str) -> tuple[str, str]:
        """Status and message of a Kustomization's condition Ready."""
        found = self._plane.admin.get(f"{KUSTOMIZATIONS}/{name}").get("status") or {}
        for each in found.get("conditions") or ():
            if each["type"] == "Ready":
                return each["status"], each["message"]
        return "", ""


def _archive(documents: list[Document]) -> bytes:
    content = yaml.safe_dump_all(documents).encode()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("objects.yaml")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()
