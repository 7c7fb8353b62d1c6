"""The environment of the documentation's commands: the demonstration, and objects of a reader."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.support.controlplane.handles import wait_for
from tests.support.controlplane.process import ControlPlaneError

ROOT: Final = Path(__file__).resolve().parents[3]
#: Folders that commands name relative to the repository.
FROM_ROOT: Final = (".venv", "examples", "manifests")
EXPORT: Final = re.compile(r"export (KUBECONFIG|PATH)=(\S+)")
COMMAND_S: Final = 240.0
#: Deadline for the first GpuUsages to be written.
WAIT_S: Final = 90.0
#: As in docs/usage.md.
BUDGET: Final = (
    "kubectl patch gpuprojects.ballast.dev vision --type=json -p"
    ' \'[{"op": "add", "path": "/spec/nodePools/0/gpu/gpuHoursPerMonth", "value": 10000}]\''
)
#: Run time of a command that runs until Ctrl-C.
SHOWN_S: Final = 8.0
PRICES: Final = re.compile(r"```yaml\n(currency:.*?)```", re.DOTALL)
ACCOUNTS: Final = """\
Cluster - 'gpu':DefaultQOS='normal'
Parent - 'root'
Account - 'vision':Description='vision':Organization='vision':GrpTRES=gres/gpu=8
"""
BATCH: Final = """\
#!/bin/bash
#SBATCH --job-name=train --nodes=2 --gpus-per-node=8 --time=12:00:00
python train.py
"""


@dataclass(slots=True, frozen=True)
class Ended:
    """The result of a command; `output` is standard output and standard error together."""

    code: int
    output: str
    took_s: float


class Stage:
    """The folder and environment of commands; `exports` are those that the demonstration prints."""

    def __init__(self, exports: Mapping[str, str], folder: Path) -> None:
        self._folder = folder
        for name in FROM_ROOT:
            (folder / name).symlink_to(ROOT / name)
        (folder / "accounts.txt").write_text(ACCOUNTS)
        (folder / "train.sh").write_text(BATCH)
        prices = PRICES.search((ROOT / "docs" / "usage.md").read_text())
        assert prices, "docs/usage.md shows no prices"
        (folder / "prices.yaml").write_text(prices[1])
        # The reader's kubeconfig has a namespace; that of the demonstration is not changed.
        config = folder / "kubeconfig"
        config.write_text(Path(exports["KUBECONFIG"]).read_text())
        path = f"{exports['PATH']}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
        self._env = os.environ | {"KUBECONFIG": str(config), "PATH": path, "COLUMNS": "120"}
        self.need("kubectl config set-context --current --namespace=vision")

    def names(self) -> dict[str, str]:
        """Placeholders of the pages -> this cluster's names, once job/train-7 is pending and
        vision's usage of its budget is known."""
        self.need(BUDGET)
        why = "kubectl ballast why job/train-7 -n vision"
        wait_for(lambda: self.run(why).code == 3, WAIT_S, "job/train-7 waits")
        used = "kubectl get gpuprojects.ballast.dev vision -o jsonpath={.status.nodePools[0].month}"
        wait_for(lambda: bool(self.need(used)), WAIT_S, "the use of vision's budget is known")
        pods = "kubectl get pods -n vision -l batch.kubernetes.io/job-name=train-7 -o name"
        node = self.need("kubectl get gpunodes -o name").split()[0].rpartition("/")[2]
        return {
            "train-7-x2f4q": self.need(pods).split()[0].removeprefix("pod/"),
            "FILE": "examples/shares.yaml",
            "ID": "examples/shares",
            "NS": "vision",
            "NAME": "vision",
            "NODE": node,
            "gpu-07": node,
            "2026-10": f"{datetime.now(UTC):%Y-%m}",
        }

    def run(self, command: str, *, is_endless: bool = False) -> Ended:
        """Run a command in bash; an endless one gets ^C after `SHOWN_S`."""
        started_s = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self._folder,
                env=self._env,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                code = process.wait(SHOWN_S if is_endless else COMMAND_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT if is_endless else signal.SIGKILL)
                code = process.wait(COMMAND_S)
            output.seek(0)
            return Ended(code, output.read(), time.monotonic() - started_s)

    def need(self, command: str) -> str:
        """The output of a command; raises if it fails."""
        ended = self.run(command)
        if ended.code:
            raise ControlPlaneError(f"{command}: exit code {ended.code}: {ended.output}")
        return ended.output


def exports_of(text: str) -> dict[str, str]:
    """KUBECONFIG, and the folder of kubectl as PATH, from the demonstration's output."""
    found = dict(EXPORT.findall(text))
    return found | {"PATH": found["PATH"].split(":")[0]}
