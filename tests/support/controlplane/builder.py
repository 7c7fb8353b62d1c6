"""Build the programs once from the pinned Go modules, into a cache outside the tree.

A program appears in the cache whole or not at all (built aside, then renamed), one builder works
at a time (a lock on the folder), and what an interrupted build finished is not built again.
"""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.controlplane.process import ControlPlaneError
from tests.support.controlplane.toolchain import find_go

MODULES = Path(__file__).with_name("modules")
KUBERNETES_VERSION = "1.36.3"
#: kube-apiserver alone takes 3 minutes on two idle cores with an empty build cache.
BUILD_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Source:
    module: str
    package: str


SOURCES = {
    "etcd": _Source("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": _Source("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": _Source(
        "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"
    ),
    "kube-scheduler": _Source("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": _Source("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    "kwok": _Source("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
}


def build_missing(folder: Path, programs: Sequence[str]) -> None:
    """Build those of `programs` that `folder` lacks; a failure carries Go's own words."""
    folder.mkdir(parents=True, exist_ok=True)
    with _only_builder(folder):
        missing = [each for each in programs if not (folder / each).exists()]
        if not missing:
            return
        go = find_go(folder.parent)
        print(f"building {', '.join(missing)} with {go} into {folder}", flush=True)
        print("this happens once and takes several minutes on two cores", flush=True)
        for number, program in enumerate(missing, start=1):
            print(f"  [{number}/{len(missing)}] {program} ...", end=" ", flush=True)
            started = time.monotonic()
            _build(go, program, folder)
            print(f"{time.monotonic() - started:.0f} s", flush=True)


def link_flags(version: str = KUBERNETES_VERSION) -> str:
    """Flags that leave out debug tables and tell the programs which release they are."""
    major, minor, _ = version.split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{name}={v}" for name, v in values.items())])


def _build(go: Path, program: str, folder: Path) -> None:
    source = SOURCES[program]
    env = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    # Inside the cache folder, so that the rename stays within one file system.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
        target = Path(partial) / program
        command = [str(go), "build", "-trimpath", "-buildvcs=false"]
        command += ["-ldflags", link_flags(), "-o", str(target), source.package]
        done = subprocess.run(
            command,
            cwd=MODULES / source.module,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            words = "\n".join(done.stdout.splitlines()[-20:])
            raise ControlPlaneError(f"building {program} failed:\n{words}")
        target.rename(folder / program)


@contextlib.contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another build in {folder}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
