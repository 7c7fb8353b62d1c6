"""Whether kubelet starts the containers of a pod again after a failure."""

from collections.abc import Mapping
from typing import Final

from extender.api.kinds import RestartPolicy
from extender.api.objects import PodSpec

_RESTARTING: Final[Mapping[str, RestartPolicy]] = {"Always": "Always", "OnFailure": "OnFailure"}


def read_restart_policy(spec: PodSpec) -> RestartPolicy:
    """The pod's policy; Never if one container has that as its own (KEP-5307), or if none is known.

    With any other answer, kubelet restarts every container of the pod that fails, except ephemeral
    ones: they are added later, and a row does not name containers.
    """
    containers = [*spec.containers, *(spec.init_containers or ())]
    if any(each.restart_policy == "Never" for each in containers):
        return "Never"
    return _RESTARTING.get(spec.restart_policy, "Never")
