"""The pods of users on the node: what they ask for, and what they print."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e import workloads
from tests.e2e.site import Site
from tests.e2e.workloads import Manifest
from tests.gpu_node import image

PROJECT: Final = "research"
#: The claim by which pods have PyTorch.
VOLUME: Final = "pytorch"
PYTHON: Final = sys.executable
READY_S: Final = 120.0


def pod(name: str, command: Sequence[str], share: str = "", **limits: str) -> Manifest:
    """A pod as a researcher writes it: a share of a card, or limits, and its program."""
    where = str(image.ENVIRONMENT)
    container: dict[str, Any] = {
        "name": "main",
        "image": image.NAME,
        "command": list(command),
        "volumeMounts": [{"name": VOLUME, "mountPath": where, "readOnly": True}],
    }
    if limits:
        container["resources"] = {"limits": limits}
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": {"claimName": VOLUME}}],
    }
    metadata: dict[str, Any] = {"annotations": {"gpu-fraction": share} if share else {}}
    return workloads.pod(name, PROJECT, {"metadata": metadata, "spec": spec})


def job(name: str, seconds: int) -> list[str]:
    """The command of one of the jobs in `gpu_shim.kit.jobs`."""
    return [PYTHON, "/jobs.py", name, str(seconds)]


@dataclass(slots=True, frozen=True)
class Tenants:
    """The project's pods on a site."""

    site: Site

    def start(self, *pods: Manifest) -> None:
        """`kubectl apply` of pods."""
        self.site.apply(*pods)

    def clear(self) -> None:
        """Delete all pods, and wait until they are gone."""
        self.site.kubectl("delete", "pods", "-n", PROJECT, "--all", "--timeout=60s")

    def words(self, name: str) -> list[str]:
        """The results that a pod has printed: a number, or an object of JSON; not its warnings."""
        printed = self.site.kubectl("logs", "-n", PROJECT, name).splitlines()
        return [each for each in printed if each[:1].isdigit() or each[:1] == "{"]

    def wait_for(self, name: str, n: int) -> list[Any]:
        """The first `n` results of a pod; NotSeenError if they do not come, AssertionError with
        what it printed if it failed."""

        def has_spoken() -> bool:
            phase = self._phase(name)
            if phase == "Failed":
                said = self.site.kubectl("logs", "-n", PROJECT, name)
                raise AssertionError(f"{name} failed: {said[-1000:]}")
            return phase != "Pending" and len(self.words(name)) >= n

        self.site.wait(f"{n} results of {name}", READY_S, has_spoken, True)
        return [json.loads(each) for each in self.words(name)[:n]]

    def wait_for_more(self, name: str, n: int) -> list[float]:
        """The next `n` rates of a pod that computes."""
        self.wait_for(name, len(self.words(name)) + n)
        return self.rates(name)[-n:]

    def end_of(self, name: str) -> str:
        """The phase in which a pod ends."""

        def has_ended() -> bool:
            return self._phase(name) in {"Succeeded", "Failed"}

        self.site.wait(f"the end of {name}", READY_S, has_ended, True)
        return self._phase(name)

    def rates(self, name: str) -> list[float]:
        """What a pod computed in each second."""
        found = [json.loads(each) for each in self.words(name)]
        return [each["steps_per_s"] for each in found if "steps_per_s" in each]

    def parts(self, names: Iterable[str], last: int = 0) -> dict[str, float]:
        """Each pod's part of what all compute in a second, by the medians of their (last) seconds.

        In its first and last seconds a pod may be alone, which a median leaves out.
        """
        rates = {name: sorted(self.rates(name)[-last:]) for name in names}
        middle = {name: each[len(each) // 2] for name, each in rates.items()}
        return {name: round(each / sum(middle.values()), 3) for name, each in middle.items()}

    def _phase(self, name: str) -> str:
        where = ("-n", PROJECT, f"--field-selector=metadata.name={name}")
        (found,) = self.site.get("pods", *where)
        return str(found["status"]["phase"])
