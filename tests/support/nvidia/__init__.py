"""NVIDIA's device plugin and container toolkit, for which gcc is needed."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
_TOOLKIT: Final = "github.com/NVIDIA/nvidia-container-toolkit/cmd"
_PLUGIN: Final = "github.com/NVIDIA/k8s-device-plugin/cmd"
SOURCES: Final = {
    "nvidia-cdi-hook": Source(MODULES / "toolkit", f"{_TOOLKIT}/nvidia-cdi-hook", has_c=True),
    "nvidia-container-runtime": Source(
        MODULES / "toolkit", f"{_TOOLKIT}/nvidia-container-runtime", has_c=True
    ),
    "nvidia-ctk": Source(MODULES / "toolkit", f"{_TOOLKIT}/nvidia-ctk", has_c=True),
    "nvidia-device-plugin": Source(
        MODULES / "plugin", f"{_PLUGIN}/nvidia-device-plugin", has_c=True
    ),
}
PROGRAMS: Final = Programs("nvidia", MODULES, SOURCES)
