"""Dagster, which makes a Job for each run or step, and a pod for each call of Pipes."""

from pathlib import Path
from typing import Final

from tests.support.packages import Packages

PROGRAMS: Final = Packages("dagster", Path(__file__).with_name("requirements.lock"))
