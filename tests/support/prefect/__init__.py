"""Prefect with its worker for Kubernetes, which makes a Job for each run of a flow."""

from pathlib import Path
from typing import Final

from tests.support.packages import Packages

PROGRAMS: Final = Packages("prefect", Path(__file__).with_name("requirements.lock"))
