"""Ballast's programs as processes beside a control plane: as installed, but on loopback.

They run the tree under test, with the interpreter of the tests. They log in as the service accounts
of `manifests/base/rbac`, so a missing right fails a test. Every program can be killed, frozen and
restarted, and a failpoint can be armed for its next start.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.controlplane.cluster import SYSTEM_NAMESPACE, ControlPlane
from tests.support.controlplane.handles import apply_crds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests" / "base"
SCHEDULER = MANIFESTS / "scheduler"
READY_S = 120.0
GRACE_S = 8.0


def install(plane: ControlPlane, *more: str) -> None:
    """Apply the manifests that precede the programs: CRDs, priority classes, rights.

    `more` are further folders of manifests/base.
    """
    apply_crds(plane, MANIFESTS / "crds")
    for folder in ("priority-classes", "rbac", *more):
        run_kubectl(plane, "apply", "--server-side", "-k", str(MANIFESTS / folder))


class Program:
    """One of Ballast's programs: its process, its port, and the failpoint of its next start."""

    def __init__(self, name: str, argv: list[str], port: int, log_path: Path) -> None:
        self.name = name
        self.port = port
        self._argv = [sys.executable, "-m", *argv]
        self._log_path = log_path
        self._log_starts = log_path.stat().st_size if log_path.exists() else 0
        self._process = self._make("")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is running."""
        return self._process.is_alive

    @property
    def was_killed(self) -> bool:
        """Whether it ended by SIGKILL, as at a failpoint."""
        return self._process.was_killed

    def start(self, failpoint: str = "") -> None:
        """Start it, with `failpoint` armed if given; returns when it is ready."""
        self._process = self._make(failpoint)
        self._process.start()
        self.wait_ready()

    def start_unready(self, failpoint: str = "") -> None:
        """Start it and return at once."""
        self._process = self._make(failpoint)
        self._process.start()

    def wait_ready(self) -> None:
        """Return once /readyz answers 200."""
        self._process.wait_until(
            lambda: is_healthy(self.port, "/readyz", is_tls=self.name == "webhooks"), READY_S
        )

    def wait_until(self, is_met: Callable[[], bool], timeout_s: float) -> None:
        """Return once `is_met`; if the program ends or time is up, an error with the end of its
        log."""
        self._process.wait_until(is_met, timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()

    def end(self) -> None:
        """SIGTERM, then SIGKILL after a grace period."""
        self._process.end(GRACE_S)

    def freeze(self) -> None:
        """SIGSTOP."""
        self._process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.thaw()

    @property
    def log_path(self) -> Path:
        """The log file; programs of the same name append to one file."""
        return self._log_path

    def read_log(self) -> str:
        """The output of this program, over all its starts."""
        return self._log_path.read_bytes()[self._log_starts :].decode(errors="replace")

    def _make(self, failpoint: str) -> Process:
        env = dict(os.environ, PYTHONUNBUFFERED="1")
        env.pop("BALLAST_FAILPOINT", None)
        if failpoint:
            env["BALLAST_FAILPOINT"] = failpoint
        return Process(self.name, self._argv, self._log_path, env)


class Installation:
    """`serve`, kube-scheduler, one or more controllers and, on request, the webhooks.

    `by_token`: programs log in with tokens, as in a cluster, instead of client certificates. The
    tokens expire after an hour.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *,
        lease_s: float = 15.0,
        bind_s: float = 30.0,
        usage_s: float = 60.0,
        by_token: bool = False,
    ) -> None:
        self._plane = plane
        self._by_token = by_token
        self._usage_s = usage_s
        self._lease_s = lease_s
        self._bind_s = bind_s
        self.serve = self._serve()
        self.control = self.another_control("control")

    def another_control(self, name: str, kubeconfig: str = "") -> Program:
        """Another controller, with its own kubeconfig if given; the caller ends it."""
        port = free_port()
        argv = [
            "extender",
            "control",
            f"--kubeconfig={kubeconfig or self.kubeconfig('ballast-control')}",
            f"--metrics-listen={LOOPBACK}:{port}",
            f"--identity={name}",
            f"--lease-duration={self._lease_s}",
            f"--bind-timeout={self._bind_s}",
            f"--usage-period={self._usage_s}",
        ]
        return Program(name, argv, port, self._log(name))

    def webhooks(self, cert_dir: Path, *options: str) -> Program:
        """The admission webhooks, with more options if given; the caller starts and ends them."""
        port = free_port()
        argv = [
            "webhooks",
            f"--kubeconfig={self.kubeconfig('ballast-webhooks')}",
            f"--listen={LOOPBACK}:{port}",
            f"--cert-dir={cert_dir}",
            *options,
        ]
        return Program("webhooks", argv, port, self._log("webhooks"))

    def view(self) -> Program:
        """`ballast view`, registered at the API server; the caller starts and ends it.

        Its Service resolves to loopback by name, since there is no Service network.
        """
        port, listen = free_port(), free_port()
        folder = MANIFESTS.parent / "overlays" / "view"
        for file in ("rbac.yaml", "registration.yaml"):
            run_kubectl(self._plane, "apply", "--server-side", "-f", str(folder / file))
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "ballast-view", "namespace": SYSTEM_NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": LOOPBACK},
        }
        run_kubectl(self._plane, "replace", "--force", "-f-", stdin=json.dumps(service))
        patch = json.dumps({"spec": {"service": {"port": listen}}})
        run_kubectl(
            self._plane, "patch", "apiservice", "v1alpha1.view.ballast.dev", "--type=merge",
            f"--patch={patch}",
        )  # fmt: skip
        argv = [
            "extender",
            "view",
            f"--kubeconfig={self.kubeconfig('ballast-view')}",
            f"--listen={LOOPBACK}:{listen}",
            f"--metrics-listen={LOOPBACK}:{port}",
        ]
        return Program("view", argv, port, self._log("view"))

    def start_scheduler(self) -> None:
        """Start kube-scheduler with our configuration and with `serve` as its extender.

        Does nothing if it already runs with them.
        """
        self._plane.start_scheduler(SCHEDULER, extender_url=self._plane.extender_url)

    def start(self) -> None:
        """Start serve, control, kube-scheduler and kwok; returns when all are ready."""
        self.serve.start_unready()
        self.control.start_unready()
        self._plane.start_kwok()
        self.serve.wait_ready()
        self.control.wait_ready()
        self.start_scheduler()

    def stop(self) -> None:
        """End Ballast's programs; the control plane keeps running."""
        self.control.kill()
        self.serve.kill()

    def _serve(self) -> Program:
        port = self._plane.ports.extender
        argv = [
            "extender",
            "serve",
            f"--kubeconfig={self.kubeconfig('ballast-scheduler')}",
            f"--listen={LOOPBACK}:{port}",
        ]
        return Program("serve", argv, port, self._log("serve"))

    def kubeconfig(self, account: str) -> str:
        """Path of a kubeconfig with the rights of the program's service account."""
        if self._by_token:
            return self._plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, account)
        user = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}")
        return self._plane.kubeconfig_for(user, groups)

    def _log(self, name: str) -> Path:
        return self._plane.logs / f"ballast-{name}.log"
