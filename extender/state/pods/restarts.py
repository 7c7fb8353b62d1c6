"""Whether kubelet restarts the containers of a pod after a failure."""

from collections.abc import Mapping
from typing import Final

from extender.api.kinds import RestartPolicy
from extender.api.objects import PodSpec

_RESTARTING: Final[Mapping[str, RestartPolicy]] = {"Always": "Always", "OnFailure": "OnFailure"}


def read_restart_policy(spec: PodSpec) -> RestartPolicy:
    """The pod's policy; Never if a container has its own policy Never (KEP-5307), or if unknown.

    With any other result, kubelet restarts every container of the pod that fails, except ephemeral
    ones: they are added later, and a row does not name containers.
    """
    containers = [*spec.containers, *(spec.init_containers or ())]
    if any(each.restart_policy == "Never" for each in containers):
        return "Never"
    return _RESTARTING.get(spec.restart_policy, "Never")
