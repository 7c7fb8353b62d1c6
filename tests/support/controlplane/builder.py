"""Build programs once from pinned Go modules, into a cache outside the tree.

A program appears in the cache whole or not at all (built aside, then renamed), one builder works
at a time (a lock on the folder), and what an interrupted build finished is not built again.
"""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.controlplane.process import ControlPlaneError
from tests.support.controlplane.toolchain import find_go

MODULES = Path(__file__).with_name("modules")
KUBERNETES_VERSION = "1.36.3"
#: Other releases that some tests run on, by their minor version; `make other-planes` builds them.
OTHER_RELEASES = {"1.32": "1.32.13", "1.34": "1.34.4", "1.35": "1.35.4", "1.37": "1.37.2"}
OTHER_MODULES = Path(__file__).with_name("releases")
#: kube-apiserver alone takes 3 minutes on two idle cores with an empty build cache.
BUILD_TIMEOUT_S = 3600.0
LIST_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Source:
    """What a program is built from: the folder of the go.mod that pins it, and its package.

    `version` is what the program says of itself.
    """

    module: Path
    package: str
    version: str = KUBERNETES_VERSION


_KUBERNETES = MODULES / "kubernetes"
#: The control plane's programs.
SOURCES = {
    "etcd": Source(MODULES / "etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Source(_KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": Source(_KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": Source(_KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": Source(_KUBERNETES, "k8s.io/kubernetes/cmd/kubectl"),
    "kwok": Source(MODULES / "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
}
#: Those of them that are built of other releases, too.
OTHER_PROGRAMS = ("kube-apiserver", "kube-scheduler")


def other_sources(release: str) -> dict[str, Source]:
    """What the programs of another release are built from; `release` is in `OTHER_RELEASES`."""
    module = OTHER_MODULES / release / "kubernetes"
    return {
        name: Source(module, f"k8s.io/kubernetes/cmd/{name}", OTHER_RELEASES[release])
        for name in OTHER_PROGRAMS
    }


def build_missing(folder: Path, sources: Mapping[str, Source]) -> None:
    """Build those of `sources` that `folder` lacks; a failure carries Go's own words.

    Two folders up lies the toolchain that all builds share.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _only_builder(folder):
        missing = [each for each in sources if not os.access(folder / each, os.X_OK)]
        if not missing:
            return
        go = find_go(folder.parents[1] / "controlplane")
        print(f"building {', '.join(missing)} with {go} into {folder}", flush=True)
        print("this happens once and takes several minutes on two cores", flush=True)
        for number, program in enumerate(missing, start=1):
            print(f"  [{number}/{len(missing)}] {program} ...", end=" ", flush=True)
            started = time.monotonic()
            _build(go, sources[program], folder / program)
            print(f"{time.monotonic() - started:.0f} s", flush=True)


def module_folder(module: Path, path: str, cache: Path) -> Path:
    """Where the sources of the module `path` are that the go.mod in `module` pins: it was built."""
    done = subprocess.run(
        [str(find_go(cache / "controlplane")), "list", "-m", "-f", "{{.Dir}}", path],
        cwd=module,
        env=_build_env(),
        capture_output=True,
        text=True,
        timeout=LIST_TIMEOUT_S,
        check=True,
    )
    return Path(done.stdout.strip())


def link_flags(version: str = KUBERNETES_VERSION) -> str:
    """Flags that leave out debug tables and tell the programs which release they are."""
    major, minor, _ = version.split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{name}={v}" for name, v in values.items())])


def _build_env() -> dict[str, str]:
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _build(go: Path, source: Source, program: Path) -> None:
    # Inside the cache folder, so that the rename stays within one file system.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix=".partial-") as partial:
        target = Path(partial) / program.name
        command = [str(go), "build", "-trimpath", "-buildvcs=false"]
        command += ["-ldflags", link_flags(source.version), "-o", str(target), source.package]
        done = subprocess.run(
            command,
            cwd=source.module,
            env=_build_env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            words = "\n".join(done.stdout.splitlines()[-20:])
            raise ControlPlaneError(f"building {program.name} failed:\n{words}")
        target.rename(program)


@contextlib.contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another build in {folder}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
