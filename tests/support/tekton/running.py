"""The controller of Tekton Pipelines as a process beside a control plane."""

import os
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds, run_kubectl
from tests.support.controlplane.ports import free_ports
from tests.support.controlplane.process import Process
from tests.support.neighbour import OnlyNeighbour
from tests.support.tekton import PROGRAM, PROGRAMS, manifests

NAMESPACE: Final = "tekton-pipelines"
READY_S: Final = 120.0
#: What it logs once it follows TaskRuns and PipelineRuns.
STARTED: Final = "Started workers"
N_CONTROLLERS: Final = 3
#: The images that it adds to pods.
NOP_IMAGE: Final = "example.invalid/nop"
_IMAGES: Final = {
    "entrypoint": "example.invalid/entrypoint",
    "nop": NOP_IMAGE,
    "shell": "example.invalid/shell",
    "sidecarlogresults": "example.invalid/results",
    "workingdirinit": "example.invalid/workingdir",
}


class Tekton(OnlyNeighbour):
    """One controller with the administrator's rights; its webhook and entrypoint do not run."""

    def __init__(self, plane: ControlPlane, work: Path, **features: str) -> None:
        """`features` are its feature flags, with underscores."""
        self._plane = plane
        self._work = work
        self._features = {key.replace("_", "-"): value for key, value in features.items()}
        self._lock_path = PROGRAMS.folder / ".running"
        probes, profiling = free_ports(2)
        argv = [str(PROGRAMS.path(PROGRAM)), f"--kubeconfig={plane.kubeconfig}", "--disable-ha"]
        argv += [f"--{name}-image={image}" for name, image in _IMAGES.items()]
        argv.append("--shell-image-win=example.invalid/shell")
        log = Path(os.environ.get("BALLAST_TEKTON_LOG", plane.logs / "tekton.log"))
        env = os.environ | {
            "SYSTEM_NAMESPACE": NAMESPACE,
            "CONFIG_FEATURE_FLAGS_NAME": "feature-flags",
            "CONFIG_LEADERELECTION_NAME": "config-leader-election-controller",
            "METRICS_DOMAIN": "tekton.dev/pipeline",
            "PROBES_PORT": str(probes),
            "PROFILING_PORT": str(profiling),
        }
        self._process = Process("tekton", argv, log, env)

    def install(self) -> None:
        """Apply its CRDs, without the conversion of old versions, and its settings."""
        definitions = []
        for file in sorted((manifests() / "300-crds").glob("*.yaml")):
            document = yaml.safe_load(file.read_text("utf-8"))
            document["spec"].pop("conversion", None)
            definitions.append(document)
        kinds = self._work / "tekton.yaml"
        kinds.write_text(yaml.safe_dump_all(definitions))
        apply_kinds(self._plane, [kinds])
        self._plane.make_namespace(NAMESPACE)
        run_kubectl(
            self._plane, "apply", "--server-side", "-f-", stdin=yaml.safe_dump_all(self._settings())
        )

    def start(self) -> None:
        """Start it; returns when it runs."""
        earlier = self._n_starts()
        super().start()
        self._process.wait_until(lambda: self._n_starts() >= earlier + N_CONTROLLERS, READY_S)

    def pause(self) -> None:
        """End it; it will start again."""
        self._process.kill()

    def _settings(self) -> list[dict[str, Any]]:
        """Its ConfigMaps, with these feature flags and without metrics, which have a fixed port."""
        found = []
        for file in sorted(manifests().glob("config-*.yaml")):
            for document in yaml.safe_load_all(file.read_text("utf-8")):
                name = document["metadata"]["name"]
                data = document.setdefault("data", {})
                data.pop("_example", None)
                if name == "config-observability":
                    document["data"] = {"metrics.backend-destination": "none"}
                if name == "feature-flags":
                    data |= self._features
                found.append(document)
        return found

    def _n_starts(self) -> int:
        path = self._process.log_path
        return path.read_text("utf-8").count(STARTED) if path.exists() else 0
