"""A real control plane on loopback: its files and processes, and the order of start and stop.

etcd, kube-apiserver and kube-controller-manager start together, kube-scheduler and kwok on request.
Any component can be killed, frozen and restarted on the same ports. The module does not depend on
pytest.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.controlplane import components, roles
from tests.support.controlplane.admin import AdminApi
from tests.support.controlplane.binaries import find_binaries
from tests.support.controlplane.certificates import (
    Authority,
    KeyPair,
    token_keys,
    write_private,
)
from tests.support.controlplane.components import Layout, Ports
from tests.support.controlplane.kubeconfig import write_kubeconfig
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import ControlPlaneError, Process
from tests.support.controlplane.schedulerconfig import write_scheduler_config
from tests.support.controlplane.store import Store

STAGES = Path(__file__).with_name("stages.yaml")
SYSTEM_NAMESPACE = "ballast-system"
#: The longest start of a component, on a busy machine; usually it takes seconds.
START_S = 180.0
#: How often new ports are tried if another process takes one first.
PORT_TRIES = 5
#: CPU is scarcer than memory: collect garbage a quarter as often as by default, but more often in a
#: program that nears this limit.
GO_GC_PERCENT = 400
GO_MEMORY_GIB = 5
#: The order of starting. They end in reverse, etcd last: without etcd, an API server takes minutes
#: to end on SIGTERM.
ORDER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
API_SERVER = "kube-apiserver"
IDENTITIES = {
    "admin": ("kubernetes-admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", ("system:masters",)),
}


class ControlPlane:
    """One control plane; `start()` returns when it is ready, `stop()` leaves no process."""

    def __init__(
        self,
        parent: Path | None = None,
        *,
        emulated: str = "",
        programs: Mapping[str, Path] | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        memory_gib: int = GO_MEMORY_GIB,
    ) -> None:
        """The work folder is created in `parent`, or in the system's temporary folder if None.

        `emulated` is an older Kubernetes version, such as "1.33", whose API and features the API
        server emulates. `programs` replace those of the same names. `flags` are further arguments
        by component name. A component collects garbage more often when it nears `memory_gib`.
        """
        self._parent = parent
        self._programs = dict(programs or {})
        self._flags = dict(flags or {})
        self._emulated = emulated
        self._processes: dict[str, Process] = {}
        self._authority = Authority()
        self._tokens = token_keys()
        self._scheduler_config = ""
        limits = {"GOGC": str(GO_GC_PERCENT), "GOMEMLIMIT": f"{memory_gib}GiB"}
        self._environment = os.environ | limits

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start etcd, kube-apiserver and kube-controller-manager, and wait until they are ready."""
        binaries = find_binaries() | self._programs
        for attempt in range(1, PORT_TRIES + 1):
            self._prepare(binaries)
            try:
                self._start_core()
                return
            except ControlPlaneError as error:
                is_port_lost = "address already in use" in str(error)
                self.stop(is_kept=not is_port_lost)
                if attempt == PORT_TRIES or not is_port_lost:
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self, *, is_kept: bool = False, with_data: bool = False) -> None:
        """End all processes and remove the work folder; the logs stay if it `is_kept`.

        `with_data` also keeps etcd's data, certificates and kubeconfigs.
        """
        self._end_all()
        if self._processes and not (is_kept and with_data):
            for folder in self._layout.all_but_logs() if is_kept else (self.work,):
                shutil.rmtree(folder, ignore_errors=True)
        self._processes.clear()

    def __enter__(self) -> "ControlPlane":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(is_kept=error is not None)

    # -- places -------------------------------------------------------------------------------

    @property
    def work(self) -> Path:
        """The folder with certificates, logs and etcd's data."""
        return self._layout.work

    @property
    def logs(self) -> Path:
        """The folder with a log per component and the audit log."""
        return self._layout.work / "logs"

    @property
    def audit_log(self) -> Path:
        """JSON lines: audit.k8s.io/v1 Events of level Metadata, written before the response."""
        return self._layout.audit_log

    @property
    def url(self) -> str:
        """The API server's URL."""
        return f"https://{LOOPBACK}:{self.ports.api_server}"

    @property
    def kubeconfig(self) -> str:
        """Path of the administrator's kubeconfig."""
        return str(self._layout.kubeconfig("admin"))

    @property
    def extender_url(self) -> str:
        """The URL of the extender for kube-scheduler."""
        return f"http://{LOOPBACK}:{self.ports.extender}"

    @property
    def authority(self) -> Authority:
        """The CA that signs client certificates and the API server's certificate."""
        return self._authority

    def program(self, name: str) -> str:
        """Path of one of the programs (`kubectl`, ...)."""
        return self._layout.program(name)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> str:
        """Path of a kubeconfig that logs in as this user and these groups (RBAC decides)."""
        name = "user-" + "".join(c if c.isalnum() else "-" for c in "-".join((user, *groups)))
        return str(self._write_kubeconfig(name, self._authority.client(user, groups)))

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> str:
        """Path of a kubeconfig with a token of this service account (valid for an hour)."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token: str = self.admin.post(path, request)["status"]["token"]
        return str(self._write_kubeconfig(f"sa-{namespace}-{name}", token))

    # -- components ---------------------------------------------------------------------------

    def start_scheduler(self, config: Path | None = None, *, extender_url: str = "") -> None:
        """Run kube-scheduler with this configuration (None: the stock one), wait until it is ready.

        `extender_url` replaces the address of the configuration's extender. A scheduler that is
        frozen or has another configuration is ended first.
        """
        target = self.work / "scheduler.json"
        wanted = write_scheduler_config(
            target, config, self._layout.kubeconfig("scheduler"), extender_url
        )
        if self.is_running("kube-scheduler") and wanted == self._scheduler_config:
            return
        self.kill("kube-scheduler")
        self._scheduler_config = wanted
        self._run("kube-scheduler", components.scheduler(self._layout, self.ports, target))

    def start_kwok(self, stages: Path = STAGES) -> None:
        """Run kwok, which simulates the kubelets of nodes annotated kwok.x-k8s.io/node=fake."""
        if not self.is_running("kwok"):
            self._run("kwok", components.kwok(self._layout, self.ports, stages))

    def is_running(self, name: str) -> bool:
        """Whether the component is alive and not frozen."""
        process = self._processes.get(name)
        return process is not None and process.is_alive and not process.is_frozen

    def pids(self) -> dict[str, int]:
        """Process ids of the live components."""
        return {name: each.pid for name, each in self._processes.items() if each.is_alive}

    def kill(self, name: str) -> None:
        """`kill -9` a component and wait until it ends; does nothing if it is not running."""
        process = self._processes.get(name)
        if process is not None:
            process.kill()

    def restart(self, name: str) -> None:
        """Restart a component with the same arguments and ports; kills it if it is running."""
        process = self._process(name)
        process.kill()
        process.start()
        self._wait_ready(process)

    def freeze(self, name: str) -> None:
        """SIGSTOP a component: it keeps its connections and does not answer."""
        self._process(name).freeze()

    def thaw(self, name: str) -> None:
        """Let a frozen component continue."""
        self._process(name).thaw()

    def compact_etcd(self) -> int:
        """Compact all of etcd's revisions but the newest; returns that one.

        The API server still answers for older ones that are in its cache.
        """
        return self.store.compact()

    def forget_history(self) -> int:
        """Make every older revision answer 410: compacts etcd and restarts the API server.

        This breaks open watches. Returns the oldest revision that remains.
        """
        revision = self.compact_etcd()
        self.restart(API_SERVER)
        return revision

    def copy_etcd(self) -> Path:
        """Stop etcd, copy its data, and start it again; returns the copy's path once the API server
        answers again."""
        copy = self.work / "etcd-copy"
        self.kill("etcd")
        shutil.copytree(self.work / "etcd", copy)
        self.restart("etcd")
        self._wait_ready(self._process(API_SERVER))
        return copy

    def restore_etcd(self, copy: Path, *, is_bumped: bool) -> None:
        """Restore a copy as in a recovery guide: with the API server and etcd stopped.

        `is_bumped`: the revision is then above all earlier ones, and these are compacted, as with
        `etcdutl snapshot restore --bump-revision --mark-compacted`.
        """
        newest = self.store.revision()
        self.kill(API_SERVER)
        self.kill("etcd")
        shutil.rmtree(self.work / "etcd")
        shutil.copytree(copy, self.work / "etcd")
        self.restart("etcd")
        if self.store.revision() >= newest:
            raise ControlPlaneError("nothing was written since the copy was made")
        if is_bumped:
            self.store.bump(newest + 1)
            self.store.compact()
        self.restart(API_SERVER)

    # -- content ------------------------------------------------------------------------------

    def mark_baseline(self) -> None:
        """Take the present content as the baseline for `reset`.

        Waits for aggregated roles such as `view`: otherwise their controller would write them after
        each `reset`, which would never find the cluster unchanged.
        """
        manager = self._process("kube-controller-manager")
        manager.wait_until(lambda: roles.are_added_up(self.admin.get(roles.PATH)["items"]), START_S)
        self.store.remember()

    def reset(self) -> int:
        """Restart what does not run and restore the baseline content.

        Watchers of the API see the deletions. Returns how many objects differed.
        """
        for name in ORDER[:3]:
            process = self._process(name)
            if process.is_frozen:
                process.thaw()
            if not process.is_alive:
                self.restart(name)
        return self.store.reset()

    def make_namespace(self, name: str) -> None:
        """Create a namespace and its `default` service account, so that pods can be created at
        once. The controller would create the account some time later."""
        labels = {"kubernetes.io/metadata.name": name}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        }
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.admin.ensure("/api/v1/namespaces", namespace)
        self.admin.ensure(f"/api/v1/namespaces/{name}/serviceaccounts", account)

    # -- inside -------------------------------------------------------------------------------

    def _prepare(self, binaries: Mapping[str, Path]) -> None:
        """Create a work folder with ports, certificates and kubeconfigs, before any start."""
        work = Path(tempfile.mkdtemp(prefix="ballast-controlplane-", dir=self._parent))
        for folder in ("pki", "kubeconfig", "logs"):
            (work / folder).mkdir()
        self._layout = Layout(binaries, work)
        self.ports = Ports(*free_ports(7))
        serving = self._authority.serving(
            ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
            (LOOPBACK,),
        )
        admin = self._authority.client(*IDENTITIES["admin"])
        aggregation = Authority("front-proxy-ca")
        front_proxy = aggregation.client("front-proxy-client")
        files = {
            "ca.crt": self._authority.certificate,
            "apiserver.crt": serving.certificate,
            "apiserver.key": serving.key,
            "admin.crt": admin.certificate,
            "admin.key": admin.key,
            "front-proxy-ca.crt": aggregation.certificate,
            "front-proxy.crt": front_proxy.certificate,
            "front-proxy.key": front_proxy.key,
            "tokens.pub": self._tokens.certificate,
            "tokens.key": self._tokens.key,
        }
        for name, content in files.items():
            write_private(self._layout.pki(name), content)
        for name, (user, groups) in IDENTITIES.items():
            self._write_kubeconfig(name, self._authority.client(user, groups))
        policy = json.dumps(components.AUDIT_POLICY)
        (work / "audit-policy.json").write_text(policy)
        self.store = Store(self.ports.etcd_client)
        pki = self._layout.pki
        self.admin = AdminApi(
            self.ports.api_server, pki("ca.crt"), pki("admin.crt"), pki("admin.key")
        )

    def _start_core(self) -> None:
        layout, ports = self._layout, self.ports
        self._run("etcd", components.etcd(layout, ports))
        api_server = components.api_server(layout, ports)
        if self._emulated:
            api_server.append(f"--emulated-version={self._emulated}")
        self._run(API_SERVER, api_server)
        self._run("kube-controller-manager", components.controller_manager(layout, ports))
        self.make_namespace("default")
        self.make_namespace(SYSTEM_NAMESPACE)
        self.mark_baseline()

    def _run(self, name: str, argv: Sequence[str]) -> None:
        argv = [*argv, *self._flags.get(name, ())]
        process = Process(name, argv, self._layout.log(name), self._environment)
        self._processes[name] = process
        process.start()
        self._wait_ready(process)

    def _wait_ready(self, process: Process) -> None:
        checks = {
            "etcd": self.store.is_ready,
            API_SERVER: self.admin.is_ready,
            "kube-controller-manager": lambda: is_healthy(self.ports.controller_manager),
            "kube-scheduler": lambda: is_healthy(self.ports.scheduler, "/readyz"),
            "kwok": lambda: is_healthy(self.ports.kwok, is_tls=False),
        }
        try:
            process.wait_until(checks[process.name], START_S)
        except ControlPlaneError as error:
            if process.name == API_SERVER:
                error.add_note(f"/readyz: {self.admin.why_unready()}")
            raise

    def _process(self, name: str) -> Process:
        process = self._processes.get(name)
        if process is None:
            known = ", ".join(self._processes) or "none"
            raise ControlPlaneError(f"{name} was never started; started: {known}")
        return process

    def _end_all(self) -> None:
        for name in reversed(ORDER):
            self.kill(name)

    def _write_kubeconfig(self, name: str, identity: KeyPair | str) -> Path:
        path = self._layout.kubeconfig(name)
        return write_kubeconfig(path, self.url, self._authority.certificate, identity)
