"""Airflow with its operators for Kubernetes."""

from pathlib import Path
from typing import Final

from tests.support.packages import Packages

PROGRAMS: Final = Packages("airflow", Path(__file__).with_name("requirements.lock"))
