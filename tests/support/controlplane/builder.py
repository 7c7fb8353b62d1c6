"""Builds programs once from pinned Go modules, into a cache outside the tree.

A program is renamed into the cache when it is complete. A lock on the folder allows one builder at
a time. Programs that an interrupted build completed are not built again.
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
from tests.support.controlplane.toolchain import find_go, release_for

MODULES = Path(__file__).with_name("modules")
KUBERNETES_VERSION = "1.36.3"
#: Other Kubernetes releases that some tests use, by minor version; `make other-planes` builds them.
OTHER_RELEASES = {"1.32": "1.32.13", "1.34": "1.34.4", "1.35": "1.35.4", "1.37": "1.37.2"}
OTHER_MODULES = Path(__file__).with_name("releases")
#: kube-apiserver alone takes 3 minutes on two idle cores with an empty build cache.
BUILD_TIMEOUT_S = 3600.0
LIST_TIMEOUT_S = 60.0
#: For functions that are looked up when they are first called.
LATE = "-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy"


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a program: the folder of the go.mod that pins it, and its package.

    `version` is the version that the program reports. `has_c`: some of it is C, and calls a library
    that it opens when it runs.
    """

    module: Path
    package: str
    version: str = KUBERNETES_VERSION
    has_c: bool = False


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
#: Programs that are also built of other releases.
OTHER_PROGRAMS = ("kube-apiserver", "kube-scheduler")


def other_sources(release: str) -> dict[str, Source]:
    """The sources of the programs of another release in `OTHER_RELEASES`."""
    module = OTHER_MODULES / release / "kubernetes"
    return {
        name: Source(module, f"k8s.io/kubernetes/cmd/{name}", OTHER_RELEASES[release])
        for name in OTHER_PROGRAMS
    }


def build_missing(folder: Path, sources: Mapping[str, Source]) -> None:
    """Build the programs of `sources` that are missing in `folder`; a failure has Go's message.

    All builds share the toolchain two folders up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _only_builder(folder):
        missing = [each for each in sources if not os.access(folder / each, os.X_OK)]
        if not missing:
            return
        print(f"building {', '.join(missing)} into {folder}", flush=True)
        print("this happens once and takes several minutes on two cores", flush=True)
        for number, program in enumerate(missing, start=1):
            print(f"  [{number}/{len(missing)}] {program} ...", end=" ", flush=True)
            started = time.monotonic()
            source = sources[program]
            go = find_go(folder.parents[1] / "controlplane", release_for(source.module))
            _build(go, source, folder / program)
            print(f"{time.monotonic() - started:.0f} s", flush=True)


def module_folder(module: Path, path: str, cache: Path) -> Path:
    """The folder with the sources of the module `path`, which the go.mod in `module` pins.

    Raises ControlPlaneError if they are no longer in Go's module cache.
    """
    go = find_go(cache / "controlplane", release_for(module))
    done = subprocess.run(
        [str(go), "list", "-m", "-f", "{{.Dir}}", path],
        cwd=module,
        env=_build_env(),
        capture_output=True,
        text=True,
        timeout=LIST_TIMEOUT_S,
        check=True,
    )
    if not (folder := done.stdout.strip()):
        raise ControlPlaneError(f"the sources of {path} are missing: `go mod download` in {module}")
    return Path(folder)


def link_flags(version: str = KUBERNETES_VERSION) -> str:
    """Linker flags that omit debug tables and set the version of the program."""
    major, minor, _ = version.split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{name}={v}" for name, v in values.items())])


def _build_env(*, has_c: bool = False) -> dict[str, str]:
    return os.environ | {
        "CGO_ENABLED": str(int(has_c)),
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _build(go: Path, source: Source, program: Path) -> None:
    # Inside the cache folder, so that the rename is within one file system.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix=".partial-") as partial:
        target = Path(partial) / program.name
        command = [str(go), "build", "-trimpath", "-buildvcs=false"]
        flags = link_flags(source.version) + (f" '-extldflags={LATE}'" if source.has_c else "")
        command += ["-ldflags", flags, "-o", str(target), source.package]
        done = subprocess.run(
            command,
            cwd=source.module,
            env=_build_env(has_c=source.has_c),
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
