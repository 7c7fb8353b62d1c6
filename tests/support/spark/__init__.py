"""Spark, whose driver makes a pod for each executor."""

import shutil
from pathlib import Path
from typing import Final

from tests.support.packages import Packages

PROGRAMS: Final = Packages("spark", Path(__file__).with_name("requirements.lock"))


def can_run() -> bool:
    """Whether Spark is installed, and Java, which it needs."""
    return PROGRAMS.has() and shutil.which("java") is not None
