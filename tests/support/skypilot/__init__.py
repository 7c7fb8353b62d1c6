"""SkyPilot, which makes a pod for each node of a cluster that a user launches."""

import shutil
from pathlib import Path
from typing import Final

from tests.support.packages import Packages

PROGRAMS: Final = Packages("skypilot", Path(__file__).with_name("requirements.lock"))


def can_run() -> bool:
    """Whether SkyPilot is installed, and the programs that it looks for on a user's machine."""
    return PROGRAMS.has() and all(map(shutil.which, ("socat", "nc")))
