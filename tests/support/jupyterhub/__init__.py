"""JupyterHub with KubeSpawner, which makes a pod for each notebook server."""

from pathlib import Path
from typing import Final

from tests.support.packages import Packages

PROGRAMS: Final = Packages("jupyterhub", Path(__file__).with_name("requirements.lock"))
