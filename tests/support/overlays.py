"""The manifests as users apply them: every overlay, rendered by kubectl, and look-ups in them.

`python -m tests.support.overlays` writes manifests/install.yaml.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.controlplane.binaries import cache_folder

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
#: Source of manifests/install.yaml: the CRDs and the default overlay.
WITH_DEFINITIONS = MANIFESTS / "install"
INSTALL = MANIFESTS / "install.yaml"
OVERLAYS = tuple(sorted(each.parent.name for each in MANIFESTS.glob("overlays/*/kustom*.yaml")))
#: Overlays that are applied in addition to one of the others.
BESIDE = ("crds", "dispatch", "monitoring", "priority-class-aliases", "view", "web")
#: Overlays that install Ballast.
WHOLE = tuple(each for each in OVERLAYS if each not in BESIDE)
Document = dict[str, Any]


def kubectl() -> str | None:
    """Path of an existing kubectl; it is not built."""
    given = os.environ.get("BALLAST_CONTROLPLANE_BIN", "")
    for folder in (Path(given) if given else None, cache_folder(os.environ)):
        if folder and os.access(folder / "kubectl", os.X_OK):
            return str(folder / "kubectl")
    return shutil.which("kubectl")


def rendered_text(folder: Path) -> str:
    """The output of `kubectl kustomize FOLDER`; without kubectl, the test is skipped."""
    program = kubectl()
    if program is None:
        pytest.skip("kubectl is missing: `make controlplane` builds it")
    done = subprocess.run(
        [program, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def rendered(overlay: str) -> tuple[Document, ...]:
    """The overlay's objects, in the order in which they are applied and deleted."""
    text = rendered_text(MANIFESTS / "overlays" / overlay)
    return tuple(yaml.load_all(text, Loader=yaml.CSafeLoader))


def of_kind(documents: Iterable[Document], *kinds: str) -> list[Document]:
    """The documents of these kinds."""
    return [each for each in documents if each["kind"] in kinds]


def name_of(document: Document) -> str:
    """`metadata.name`."""
    name: str = document["metadata"]["name"]
    return name


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or DaemonSet of an overlay, with the namespaces of the overlay."""

    overlay: str
    document: Document
    is_node_agent: bool

    @property
    def name(self) -> str:
        """`overlay/name`, for messages."""
        return f"{self.overlay}/{name_of(self.document)}"

    @property
    def template(self) -> Document:
        """The pod template."""
        template: Document = self.document["spec"]["template"]
        return template

    @property
    def pod(self) -> Document:
        """The pod template's spec."""
        spec: Document = self.template["spec"]
        return spec

    @property
    def containers(self) -> list[Document]:
        """All containers, init containers included."""
        return [*self.pod.get("initContainers", ()), *self.pod["containers"]]


def workloads(overlay: str) -> Iterator[Workload]:
    """All Deployments, DaemonSets, StatefulSets and Jobs of the overlay."""
    documents = rendered(overlay)
    open_namespaces = {
        name_of(each)
        for each in of_kind(documents, "Namespace")
        if each["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") == "privileged"
    }
    for each in of_kind(documents, "Deployment", "DaemonSet", "StatefulSet", "Job"):
        is_node_agent = each["metadata"]["namespace"] in open_namespaces
        yield Workload(overlay, each, is_node_agent)


if __name__ == "__main__":
    INSTALL.write_text(rendered_text(WITH_DEFINITIONS), "utf-8")
