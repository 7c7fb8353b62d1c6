"""A real containerd with NRI for tests, spoken to as kubelet does; no cluster, no registry.

It lives in namespaces of its own, so that whatever it leaves goes with it. Containers are given
the machine's own interpreter and C library, read-only: the image holds a sandbox program and
empty folders.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.integration.gpu_shim.containers import DONE_S
from tests.support.node import cgroups

HERE = Path(__file__).parent
IMAGE = "docker.io/ballast/test:1"
PAUSE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin"}
FOLDERS = ("etc", "proc", "sys", "dev", "tmp", "usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64")


def find_programs() -> Path | None:
    """The folder with containerd, its shim and ctr: built before, or nowhere."""
    given = os.environ.get("BALLAST_NODE_BIN")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ballast", "node")
    for folder in [Path(given)] if given else sorted(cache.glob("*")):
        if all((folder / each).exists() for each in ("containerd", "ctr")):
            return folder
    return None


def messages(into: Path) -> Any:
    """The messages of the Container Runtime Interface that tests use."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", f"--python_out={into}"]
    subprocess.run([*command, "test_nri_cri.proto"], check=True)
    sys.path.insert(0, str(into))
    try:
        return __import__("test_nri_cri_pb2")
    finally:
        sys.path.remove(str(into))


@dataclass(slots=True)
class Containerd:
    """One containerd; its sockets lie in `root`."""

    root: Path
    programs: Path
    pb: Any = None
    channel: Any = None
    _process: asyncio.subprocess.Process | None = None
    _cgroup: str = ""
    _pods: dict[str, Any] = field(default_factory=dict)

    @property
    def nri(self) -> Path:
        return self.root / "nri.sock"

    async def start(self) -> None:
        """Start it; returns when it answers."""
        self.pb = messages(self.root)
        (self.root / "c.toml").write_text(self._settings())
        self._cgroup = cgroups.make_branch(9)
        # The shell collects orphans, as a first process must, and starts containerd again.
        start = f"containerd -c {self.root}/c.toml & echo $! >{self.root}/pid; wait $!"
        loop = f"while :; do {start}; done"
        self._process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("sh", "-c", loop),
            env={"PATH": f"{self.programs}:{os.environ['PATH']}:/usr/sbin"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=(self.root / "log").open("ab"),
        )
        await self._answers()

    async def restart(self) -> None:
        """Kill containerd, not what it runs; returns when it answers again."""
        await self.channel.close()
        (child,) = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        pid = (self.root / "pid").read_text().strip()
        command = ("nsenter", "-t", child, "-p", "kill", "-9", pid)
        process = await asyncio.create_subprocess_exec(*command)
        await process.wait()
        await self._answers()

    async def _answers(self) -> None:
        options = [("grpc.default_authority", "localhost")]
        self.channel = grpc.aio.insecure_channel(f"unix:{self.root}/c.sock", options=options)
        end = asyncio.get_running_loop().time() + DONE_S
        while asyncio.get_running_loop().time() < end:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self.call("Version", self.pb.Version(), self.pb.Runtime)
                return
            await asyncio.sleep(0.05)
        raise AssertionError(self.log())

    async def stop(self) -> None:
        """End it and everything that it started."""
        if self._process is not None:
            await self.channel.close()
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None
            await asyncio.to_thread(cgroups.remove_branch, self._cgroup)

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return (self.root / "log").read_text()

    async def take_image(self) -> None:
        """Make the image and import it."""
        archive = self.root / "image.tar"
        await asyncio.to_thread(make_image, archive)
        command = [str(self.programs / "ctr"), "-a", f"{self.root}/c.sock", "-n", "k8s.io"]
        process = await asyncio.create_subprocess_exec(
            *command, "images", "import", str(archive), stdout=asyncio.subprocess.DEVNULL
        )
        assert await process.wait() == 0

    async def call(self, method: str, request: Any, answer: Any) -> Any:
        """One call, as kubelet makes it."""
        service = "ImageService" if "Image" in method else "RuntimeService"
        stub = self.channel.unary_unary(
            f"/runtime.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await stub(request, timeout=DONE_S)

    async def pod(self, uid: str, annotations: Mapping[str, str]) -> str:
        """Start a pod's sandbox on the machine's network; its id."""
        pb = self.pb
        options = pb.NamespaceOption(network=2)
        security = pb.LinuxSandboxSecurityContext(namespace_options=options)
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=f"pod-{uid[:8]}", uid=uid, namespace="team"),
            annotations=annotations,
            log_directory=str(self.root),
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent=f"{self._cgroup}/pod{uid}", security_context=security
            ),
        )
        request = pb.RunPodSandboxRequest(config=config)
        # runc may lose its first child on a busy machine; kubelet tries again, and so do we.
        for is_last in (False, False, True):
            try:
                answer = await self.call("RunPodSandbox", request, pb.SandboxId)
                break
            except grpc.aio.AioRpcError:
                if is_last:
                    raise
        sandbox: str = answer.pod_sandbox_id
        self._pods[sandbox] = config
        return sandbox

    async def run(
        self, sandbox: str, command: list[str], mounts: Mapping[str, bool], **env: str
    ) -> str:
        """Create and start a container that sees these paths of the machine; its name."""
        pb, name = self.pb, f"c{len(list(self.root.glob('*.out')))}"
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name),
            image=pb.ImageSpec(image=IMAGE),
            command=command,
            envs=[pb.KeyValue(key=key, value=value) for key, value in env.items()],
            mounts=[
                pb.Mount(container_path=path, host_path=path, readonly=is_ro)
                for path, is_ro in mounts.items()
            ],
            log_path=f"{name}.out",
        )
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=config, sandbox_config=self._pods[sandbox]
        )
        (self.root / f"{name}.out").touch()
        made = await self.call("CreateContainer", request, pb.ContainerId)
        await self.call("StartContainer", made, pb.Empty)
        return name

    async def output(self, name: str) -> list[str]:
        """What the container wrote, as soon as it ended with a full stop of its own: `.`"""
        end = asyncio.get_running_loop().time() + DONE_S
        while True:
            raw = (self.root / f"{name}.out").read_text().splitlines()
            lines = [line.split(" ", 3)[3] for line in raw]
            if end_ix := [ix for ix, line in enumerate(lines) if line.strip(chr(34)) == "."]:
                return lines[: end_ix[0]]
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{lines}\n{self.log()[-2000:]}")
            await asyncio.sleep(0.02)

    def _settings(self) -> str:
        return f"""
version = 3
root = "{self.root}/root"
state = "{self.root}/state"
[grpc]
address = "{self.root}/c.sock"
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "{self.nri}"
plugin_path = "{self.root}/plugins"
plugin_config_path = "{self.root}/conf"
[plugins."io.containerd.nri.v1.nri".default_validator]
enable = true
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
cdi_spec_dirs = ["{self.root}/cdi"]
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{IMAGE}"
[plugins."io.containerd.ttrpc.v1.ttrpc"]
address = "{self.root}/t.sock"
"""


def make_image(archive: Path) -> None:
    """An image of one static program and empty folders, as `docker save` would write it."""
    folder = archive.parent / "image"
    folder.mkdir(exist_ok=True)
    source = folder / "pause.c"
    source.write_text(PAUSE)
    subprocess.run(["gcc", "-static", "-O1", "-o", folder / "pause", source], check=True)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in ("usr", "usr/lib", *FOLDERS):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, target in LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        tar.add(folder / "pause", "pause")
    digest = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        for name, data in (
            ("layer.tar", layer.getvalue()),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    shutil.rmtree(folder)
