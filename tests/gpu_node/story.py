"""`python -m tests.gpu_node.story ARCHIVE [STEP ...]`: users' pods on a node with a real GPU.

ARCHIVE is Ballast's image. Each result is a line with what was expected, also in `results.jsonl` in
$OUT; a step that fails does not keep the next one from running. Exits with 1 if any result is not
as expected.
"""

import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.e2e.site import NODE_SYSTEM, SYSTEM, Site
from tests.gpu_node import failures, shares
from tests.gpu_node.results import Results
from tests.gpu_node.site import NODE, gpu_site
from tests.gpu_node.stage import Stage
from tests.gpu_node.tenants import PROJECT, Tenants

OURS: Final = "app.kubernetes.io/name=ballast"
STEPS: Final[dict[str, Callable[[Stage], None]]] = {
    step.__name__: step
    for step in (
        *(shares.memory, shares.smi, shares.two, shares.busy, shares.burst, shares.whole),
        *(shares.lending, failures.agent_replaced, failures.killed, failures.restarts),
        *(failures.stranger, failures.evicted, shares.specification),
    )
}


def run(archive: Path, steps: Sequence[str], out: Path) -> int:
    """Install, and take the steps; returns how many results are not as expected."""
    results = Results(out)
    with gpu_site(archive, out / "logs") as site:
        stage = Stage(site, Tenants(site), results)
        results.tell("the node is Ready", NODE)
        try:
            stage.install()
            for name in steps:
                _take(stage, name, out)
        finally:
            _keep_words(site, out / "end.txt")
    return results.n_bad


def _take(stage: Stage, name: str, out: Path) -> None:
    stage.results.tell("step", name)
    try:
        STEPS[name](stage)
    except Exception:
        words = traceback.format_exc(limit=2)[-1500:]
        stage.results.tell(f"{name} broke off", words, is_good=False)
        _keep_words(stage.site, out / f"{name}.txt")
    finally:
        stage.tenants.clear()


def _keep_words(site: Site, target: Path) -> None:
    """Write down what a failure is understood by, as far as the cluster still answers."""
    commands = [["get", "gpunodes,gpunodepools", "-o", "yaml"]]
    for namespace in (PROJECT, NODE_SYSTEM, SYSTEM):
        commands.append(["describe", "pods", "-n", namespace])
        commands.append(["logs", "-n", namespace, "-l", OURS, "--tail=300", "--prefix"])
    with target.open("w") as file:
        for command in commands:
            with contextlib.suppress(subprocess.SubprocessError):
                file.write(f"# kubectl {' '.join(command)}\n{site.kubectl(*command)}")


def main(arguments: Sequence[str]) -> None:
    """Run the named steps, or all."""
    archive, *steps = arguments
    if unknown := set(steps) - set(STEPS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(STEPS)}")
    n_bad = run(Path(archive), steps or list(STEPS), Path(os.environ.get("OUT", ".")))
    sys.exit(f"{n_bad} results are not as expected" if n_bad else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
