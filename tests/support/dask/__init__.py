"""Dask's operator for Kubernetes, which makes a pod for a scheduler and one for each worker."""

from pathlib import Path
from typing import Final

from tests.support.packages import Packages

PROGRAMS: Final = Packages("dask", Path(__file__).with_name("requirements.lock"))


def definitions() -> list[Path]:
    """The files with its CRDs, from the chart in the package."""
    return sorted(PROGRAMS.folder.glob("lib/python*/site-packages/dask_kubernetes/**/crds/*.yaml"))
