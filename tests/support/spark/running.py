"""A driver of Spark as a process beside a control plane. No executor runs in its pods."""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.ports import LOOPBACK
from tests.support.controlplane.process import Process
from tests.support.neighbour import Neighbour
from tests.support.spark import PROGRAMS

#: The application: it has a driver, and does nothing.
APPLICATION: Final = """
import time
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate()
time.sleep(3600)
"""


class Spark(Neighbour):
    """One driver, with the administrator's rights; `options` are of `--conf`."""

    def __init__(self, plane: ControlPlane, folder: Path, options: dict[str, str]) -> None:
        file = folder / "application.py"
        file.write_text(APPLICATION, "utf-8")
        (home,) = PROGRAMS.folder.glob("lib/python*/site-packages/pyspark")
        env = os.environ | {
            "KUBECONFIG": plane.kubeconfig,
            "PYSPARK_PYTHON": str(PROGRAMS.path("python")),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": LOOPBACK,
        }
        given = {
            "spark.driver.host": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.kubernetes.container.image": "example.invalid/spark",
        } | options
        argv = [str(home / "bin" / "spark-submit"), f"--master=k8s://{plane.url}"]
        for key, value in given.items():
            argv += ["--conf", f"{key}={value}"]
        log = Path(os.environ.get("BALLAST_SPARK_LOG", plane.logs / "spark.log"))
        self._process = Process("spark", [*argv, str(file)], log, env)
