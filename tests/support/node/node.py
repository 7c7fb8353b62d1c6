"""One real node: its namespaces, files and programs.

It has its own process tree, mounts and network, with containerd, kubelet and kube-proxy at the
usual paths (/var/lib/kubelet, /run/containerd, /var/run/nri, /etc). What they write there is stored
in the work folder. When the test run ends, the first process inside ends, and with it the kernel
removes all processes, mounts and interfaces of the node.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.support.controlplane.process import POLL_S, ControlPlaneError, Process
from tests.support.node import cgroups, settings
from tests.support.node.binaries import find_node_binaries
from tests.support.node.images import SANDBOX_IMAGE, write_sandbox_image
from tests.support.node.needs import NAMESPACES, missing_needs, plugin_folder
from tests.support.node.network import Wire
from tests.support.node.plane import NodeControlPlane

REAPER = Path(__file__).with_name("reaper.py")
#: Folders of the machine that the node sees through an overlay with its own files.
OVERLAID = ("etc", "opt", "usr/lib", "usr/local", "var")
#: Folders inside the node that are bind mounts of the work folder: containerd cannot use its own
#: overlays on an overlay.
OWN = ("var/lib/containerd", "var/lib/kubelet", "var/log")
#: Kernel settings that kubelet would change; it gets ordinary files instead.
KERNEL = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
IMPORT_TIMEOUT_S = 120.0
START_S = 60.0
READY_S = 90.0


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of a node, the `ix`-th of its plane (0 to 3).

    `files`: path inside the node -> file of the machine that is copied there before the start, such
    as a driver's libraries or a device list; only below the folders of `OVERLAID`. `mounts`: file
    systems of the machine below those folders, which an overlay leaves out. `runtimes`: further
    runtimes in the manner of runc, handler -> program.
    """

    name: str = "real-0"
    ix: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    mounts: Sequence[str] = ()
    runtimes: Mapping[str, Path] = field(default_factory=dict)


class RealNode:
    """`start()` returns when the node is Ready; `stop()` removes everything except the logs."""

    def __init__(self, plane: NodeControlPlane, options: NodeOptions | None = None) -> None:
        self.options = options or NodeOptions()
        self.name = self.options.name
        self._plane = plane
        self._processes: dict[str, Process] = {}
        self._wire: Wire | None = None
        self._cgroup = ""
        self._work: Path | None = None

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the node and wait until the API server shows it as Ready.

        Raises ControlPlaneError, with what to do, if this machine cannot run a node.
        """
        missing = missing_needs()
        if missing:
            raise ControlPlaneError("no real node here: " + "; ".join(missing))
        self._binaries = find_node_binaries()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes of the node and remove its files; its logs stay with the plane's."""
        if "reaper" in self._processes:
            self._processes["reaper"].kill()
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
        if self._wire is not None:
            self._wire.disconnect()
            self._wire = None
        is_clean = not self._cgroup or cgroups.remove_branch(self._cgroup)
        self._cgroup = ""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work = None
        if not is_clean:
            raise ControlPlaneError(f"{self.name}: processes of the node live on in its cgroups")

    def __enter__(self) -> "RealNode":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- use ----------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The node's InternalIP, reachable from the machine."""
        return self._plane.network.node(self.options.ix)

    @property
    def logs(self) -> Path:
        """The folder with a log of each program of the node."""
        return self._plane.logs / self.name

    def import_image(self, archive: Path) -> None:
        """Import the images of an archive, as if kubelet had pulled them."""
        self.run("ctr", "--namespace=k8s.io", "images", "import", "--local", str(archive))

    def run(self, *command: str, timeout_s: float = IMPORT_TIMEOUT_S) -> str:
        """The output of a command inside the node's namespaces; `ctr` and `runc` are on the path.

        Raises CalledProcessError, with the output, if it fails.
        """
        done = subprocess.run(
            [*self._enter(), *command],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, command)
            error.add_note((done.stdout + done.stderr).strip())
            raise error
        return done.stdout

    def start_program(self, program: Path, *flags: str) -> None:
        """Run a program of the machine inside the node, until the node stops; its log is in
        `logs`."""
        argv = [*self._enter(), str(program), *flags]
        log = self.logs / f"{program.name}.log"
        self._processes[program.name] = Process(program.name, argv, log, self._environment())
        self._processes[program.name].start()

    def kill(self, program: str) -> None:
        """`kill -9` containerd, kubelet or kube-proxy; containers keep running."""
        process = self._processes[program]
        for pid in _children(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()

    def restart(self, program: str) -> None:
        """Kill one of the node's programs and start it again."""
        self.kill(program)
        self._processes[program].start()

    # -- inside -------------------------------------------------------------------------------

    def _start(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        _sweep_folders()
        self._work = Path(tempfile.mkdtemp(prefix=f"{cgroups.PREFIX}{os.getpid()}-"))
        self._cgroup = cgroups.make_branch(self.options.ix)
        self._start_reaper()
        self._wire = Wire(self._plane.network, self.options.ix, self._reaper_pid)
        self._wire.connect()
        self._lay_files(self._work)
        self._mount(self._work)
        self._run("containerd", "--config", settings.CONTAINERD)
        self._wait("containerd", lambda: self._succeeds("ctr", "version"))
        self.import_image(write_sandbox_image(self._work))
        self._run("kubelet", *self._kubelet_flags())
        self._run("kube-proxy", f"--config={settings.PROXY}")
        self._wait("kubelet", self._is_ready)

    def _start_reaper(self) -> None:
        argv = [_which("unshare"), *NAMESPACES, "--kill-child=SIGKILL", "--propagation=private"]
        argv += [sys.executable, "-I", "-S", str(REAPER)]
        process = Process("reaper", argv, self.logs / "reaper.log")
        self._processes["reaper"] = process
        process.start()
        process.wait_until(lambda: bool(self._inner_pids()), START_S)
        self._reaper_pid = self._inner_pids()[0]

    def _inner_pids(self) -> list[int]:
        """PIDs of the first process inside, once `unshare` has started and forked it."""
        pids = _children(self._processes["reaper"].pid)
        here = Path("/proc/self/ns/net").readlink()
        return [each for each in pids if Path(f"/proc/{each}/ns/net").readlink() != here]

    def _lay_files(self, work: Path) -> None:
        """Write the node's own files to the upper folders of its overlays."""
        self._place = self._make_place()
        contents = settings.files(self._place)
        for path, text in contents.items():
            _target(work, path).write_text(text)
        _target(work, settings.KUBELET_CA).write_bytes(self._plane.authority.certificate)
        authority = self._plane.authority
        kubelet = authority.client(f"system:node:{self.name}", ("system:nodes",))
        self._plane.node_kubeconfig(_target(work, settings.KUBELET_KUBECONFIG), kubelet)
        proxy = authority.client("system:kube-proxy")
        self._plane.node_kubeconfig(_target(work, settings.PROXY_KUBECONFIG), proxy)
        for path, source in self.options.files.items():
            shutil.copy2(source, _target(work, path))
        for path in OWN:
            _target(work, f"/{path}/x")
            (work / path).mkdir(parents=True)

    def _make_place(self) -> settings.Place:
        plugins = plugin_folder()
        assert plugins is not None
        network = self._plane.network
        return settings.Place(
            name=self.name,
            address=self.address,
            pods=network.pods(self.options.ix),
            all_pods=network.all_pods,
            cgroup=self._cgroup,
            plugins=plugins,
            snapshotter="overlayfs",
            sandbox_image=SANDBOX_IMAGE,
            runtimes=self.options.runtimes,
        )

    def _mount(self, work: Path) -> None:
        """Mount the node's view of the machine's files."""
        lines = ["set -e", "mount -t tmpfs -o mode=755 node-run /run"]
        for ix, mount in enumerate(self.options.mounts):
            (work / "mounts" / str(ix)).mkdir(parents=True)
            lines.append(f"mount --rbind {mount} {work / 'mounts' / str(ix)}")
        for folder in OVERLAID:
            upper, inner = _upper(work, folder), work / "overlay" / folder.replace("/", "-")
            upper.mkdir(parents=True, exist_ok=True)
            inner.mkdir(parents=True)
            layers = f"lowerdir=/{folder},upperdir={upper},workdir={inner}"
            lines.append(f"mount -t overlay -o {layers} node-files /{folder}")
        for ix, mount in enumerate(self.options.mounts):
            lines.append(f"mount --rbind {work / 'mounts' / str(ix)} {mount}")
        lines += [f"mkdir -p /{each}; mount --bind {work / each} /{each}" for each in OWN]
        for setting in KERNEL:
            own = work / "kernel" / setting
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(Path("/proc/sys", setting).read_text())
            lines.append(f"mount --bind {own} /proc/sys/{setting}")
        # kubelet's mounts must propagate to containerd, but not out of the namespace.
        lines.append("mount --make-rshared /")
        self.run("sh", "-c", "\n".join(lines))

    def _kubelet_flags(self) -> list[str]:
        labels = ",".join(f"{key}={value}" for key, value in self.options.labels.items())
        flags = [
            f"--config={settings.KUBELET}",
            f"--kubeconfig={settings.KUBELET_KUBECONFIG}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        ]
        return [*flags, f"--node-labels={labels}"] if labels else flags

    def _run(self, name: str, *flags: str) -> None:
        argv = [*self._enter(), str(self._binaries / name), *flags]
        process = Process(name, argv, self.logs / f"{name}.log", self._environment())
        self._processes[name] = process
        process.start()

    def _wait(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        process = self._processes[name]
        while not is_ready():
            if not process.is_alive or time.monotonic() > deadline:
                raise ControlPlaneError(
                    f"node {self.name}: {name} did not get ready; {process.describe_log()}"
                )
            time.sleep(5 * POLL_S)

    def _is_ready(self) -> bool:
        items = self._plane.admin.get("/api/v1/nodes")["items"]
        node = next((each for each in items if each["metadata"]["name"] == self.name), None)
        if node is None or node["spec"].get("taints"):
            return False
        conditions = node["status"].get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _succeeds(self, *command: str) -> bool:
        try:
            self.run(*command, timeout_s=10.0)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    def _enter(self) -> list[str]:
        pid = str(self._reaper_pid)
        return [_which("nsenter"), "--target", pid, "--net", "--mount", "--pid", "--"]

    def _environment(self) -> dict[str, str]:
        path = f"{self._binaries}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return os.environ | {"PATH": path, "CONTAINERD_ADDRESS": settings.CONTAINERD_SOCKET}


def _sweep_folders() -> None:
    """Remove the work folders of killed runs."""
    for folder in Path(tempfile.gettempdir()).glob(f"{cgroups.PREFIX}*"):
        pid = folder.name.removeprefix(cgroups.PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _upper(work: Path, folder: str) -> Path:
    return work / "files" / folder


def _target(work: Path, path: str) -> Path:
    """Where a file of the node is written before mounting; creates its folder."""
    relative = path.lstrip("/")
    if not relative.startswith(tuple(f"{each}/" for each in OVERLAID)):
        known = ", ".join(f"/{each}" for each in OVERLAID)
        raise ControlPlaneError(f"{path}: a node has files of its own below {known} only")
    target = work / "files" / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _which(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise ControlPlaneError(f"no program {program} on the PATH")
    return found
