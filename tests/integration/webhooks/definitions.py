"""The real definitions of other projects' kinds, out of the Go modules that they publish.

Pinned by the hash that Go itself checks; fetched once by the `go` that builds the control plane.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.controlplane.process import ControlPlaneError
from tests.support.controlplane.toolchain import find_go

FETCH_S = 120.0
CACHE = Path.home() / ".cache" / "ballast"


@dataclass(frozen=True, slots=True)
class Module:
    """A published module, its hash, and the files in it that define kinds."""

    path: str
    version: str
    sum: str
    files: tuple[str, ...]


MODULES = (
    Module(
        "sigs.k8s.io/jobset",
        "v0.8.2",
        "h1:WC5a5G7MqfJJy4p+6OxGMpfbB90KoDSay96Mc4yMMZM=",
        ("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
    ),
    Module(
        "sigs.k8s.io/lws",
        "v0.7.0",
        "h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8=",
        ("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
    ),
    Module(
        "github.com/kubeflow/training-operator",
        "v1.9.4",
        "h1:MjYXzeaHGBmF47BlhCo6+Mb7ypHrVfO6vsys1ZHF56A=",
        ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
    ),
    Module(
        "github.com/kubeflow/mpi-operator",
        "v0.8.0",
        "h1:22EccUiO4VDooG4TooesdE8o8euGVj89PIRhiP24SRE=",
        ("manifests/base/kubeflow.org_mpijobs.yaml",),
    ),
    Module(
        "github.com/ray-project/kuberay/ray-operator",
        "v1.4.2",
        "h1:A4tGzbIky8sInAUxZBdBb+rrpZ7fbqoxdsOtm559Zqg=",
        ("config/crd/bases/ray.io_rayclusters.yaml",),
    ),
)


class NotFetchedError(Exception):
    """A module cannot be had here; the message says why."""


def fetch() -> list[Path]:
    """The files of all modules; NotFetchedError without a `go`, or where none can be reached."""
    try:
        go = find_go(CACHE)
    except (ControlPlaneError, OSError, subprocess.SubprocessError) as error:
        raise NotFetchedError(str(error)) from error
    return [path for module in MODULES for path in _files(go, module)]


def _files(go: Path, module: Module) -> Iterator[Path]:
    env = os.environ | {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(go), "mod", "download", "-json", f"{module.path}@{module.version}"],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    try:
        told = json.loads(done.stdout)
    except ValueError as error:
        raise NotFetchedError(f"{module.path}: {done.stderr[-300:]}") from error
    if "Dir" not in told:
        raise NotFetchedError(f"{module.path}: {told.get('Error', 'not there')}")
    assert told["Sum"] == module.sum, f"{module.path} {module.version} has changed"
    for name in module.files:
        yield Path(told["Dir"]) / name
