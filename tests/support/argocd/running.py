"""Argo CD's application controller and repository server as processes beside a control plane.

Its API server and user interface are not run: Applications are written as objects, and each follows
a git repository of this machine.
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.argocd import PROGRAM, PROGRAMS, definitions, wrapper
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process

READY_S: Final = 60.0
NAMESPACE: Final = "argocd"
APPLICATIONS: Final = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"
#: Seconds between two comparisons of an Application that did not change; 180 by default.
RESYNC_S: Final = 5
Document = dict[str, Any]


class ArgoCd:
    """One controller, with the administrator's rights, and the repositories that it reads."""

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._work = work / "argocd"
        self._redis, self._repo, self._metrics = free_port(), free_port(), free_port()
        self._repo_metrics = free_port()
        config = self._work / ".kube" / "config"
        config.parent.mkdir(parents=True)
        config.write_bytes(Path(plane.kubeconfig).read_bytes())
        script = Path(shutil.copy(wrapper(), self._work))
        script.chmod(0o755)
        argocd = str(PROGRAMS.path(PROGRAM))
        self._processes = [
            self._process("redis", shutil.which("redis-server") or "", *self._redis_argv()),
            self._process("argocd-repo-server", argocd, *self._repo_argv()),
            self._process("argocd-application-controller", argocd, *self._controller_argv()),
        ]

    def _redis_argv(self) -> list[str]:
        return [
            "--bind", LOOPBACK, "--port", str(self._redis), "--save", "", "--dir", str(self._work),
        ]  # fmt: skip

    def _repo_argv(self) -> list[str]:
        return [
            f"--redis={LOOPBACK}:{self._redis}",
            f"--address={LOOPBACK}",
            f"--port={self._repo}",
            f"--metrics-address={LOOPBACK}",
            f"--metrics-port={self._repo_metrics}",
            "--disable-tls",
            "--client-ca-path=",
        ]

    def _controller_argv(self) -> list[str]:
        return [
            f"--redis={LOOPBACK}:{self._redis}",
            f"--repo-server={LOOPBACK}:{self._repo}",
            "--repo-server-plaintext",
            f"--metrics-port={self._metrics}",
            f"--app-resync={RESYNC_S}",
            "--app-resync-jitter=0",
            f"--namespace={NAMESPACE}",
        ]

    def _process(self, name: str, *argv: str) -> Process:
        folders = {
            f"ARGOCD_{part}": str(self._work / part.lower())
            for part in ("TLS_DATA_PATH", "SSH_DATA_PATH", "GPG_DATA_PATH", "GNUPGHOME")
        }
        env = os.environ | folders | {
            "ARGOCD_BINARY_NAME": name,
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "HOME": str(self._work),
            "PATH": f"{self._work}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._work / ".kube" / "config"),
            "TMPDIR": str(self._work),
        }  # fmt: skip
        return Process(name, argv, self._plane.logs / f"{name}.log", env)

    def install(self) -> None:
        """Apply the CRDs and the settings."""
        apply_kinds(self._plane, definitions())
        labels = {"app.kubernetes.io/part-of": "argocd"}
        anything = [{"group": "*", "kind": "*"}]
        project = {
            "sourceRepos": ["*"],
            "destinations": [{"namespace": "*", "server": "*"}],
            "clusterResourceWhitelist": anything,
        }
        documents = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            _settings("ConfigMap", "argocd-cm", labels),
            _settings("ConfigMap", "argocd-rbac-cm", labels),
            _settings("Secret", "argocd-secret", labels)
            | {"stringData": {"server.secretkey": "none"}},
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "AppProject",
                "metadata": {"name": "default", "namespace": NAMESPACE},
                "spec": project,
            },
        ]
        self._apply(documents)

    def start(self) -> None:
        """Start the programs; returns when they are ready."""
        tests = (self._answers, self._serves, self._watches)
        for process, is_ready in zip(self._processes, tests, strict=True):
            process.start()
            process.wait_until(is_ready, READY_S)

    def _answers(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self._redis), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _serves(self) -> bool:
        return is_healthy(self._repo_metrics, is_tls=False)

    def _watches(self) -> bool:
        return is_healthy(self._metrics, is_tls=False)

    def stop(self) -> None:
        """End them."""
        for process in reversed(self._processes):
            process.kill()

    def publish(self, name: str, documents: list[Document]) -> str:
        """The next commit of a repository of this name; returns its hash."""
        folder = self._work / "repositories" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            self._git(folder, "init", "--quiet", "--initial-branch=main")
        (folder / "objects.yaml").write_text(yaml.safe_dump_all(documents), "utf-8")
        self._git(folder, "add", "--all")
        self._git(folder, "-c", "user.name=none", "-c", "user.email=none", "commit", "-qm", "next")
        return self._git(folder, "rev-parse", "HEAD").strip()

    def follow(self, name: str, *options: str) -> None:
        """An Application of the repository of this name, with these sync options. It is applied
        again whenever it differs."""
        body = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "project": "default",
                "source": {
                    "repoURL": f"file://{self._work}/repositories/{name}",
                    "targetRevision": "main",
                    "path": ".",
                },
                "destination": {"server": "https://kubernetes.default.svc"},
                "syncPolicy": {
                    "automated": {"prune": True, "selfHeal": True},
                    "syncOptions": list(options),
                },
            },
        }
        self._apply([body])

    def refresh(self, name: str) -> None:
        """Have it look for a new commit now."""
        note = "argocd.argoproj.io/refresh=hard"
        words = ("annotate", "--overwrite", "application", name, "-n", NAMESPACE, note)
        run_kubectl(self._plane, *words)

    def _apply(self, documents: list[Document]) -> None:
        text = yaml.safe_dump_all(documents)
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=text)

    def _git(self, folder: Path, *words: str) -> str:
        argv = ["git", "-C", str(folder), *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _settings(kind: str, name: str, labels: dict[str, str]) -> Document:
    meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta}
