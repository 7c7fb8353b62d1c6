"""Whether kubelet restarts the containers of a pod."""

import pytest

from extender.api.objects import Container, PodSpec
from extender.state.pods.restarts import read_restart_policy


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_the_policy_is_the_pods(policy: str) -> None:
    sidecar = Container(name="sidecar", restart_policy="Always")
    spec = PodSpec(restart_policy=policy, containers=[Container()], init_containers=[sidecar])
    assert read_restart_policy(spec) == policy


@pytest.mark.parametrize("policy", ["", "OnFullMoon"])
def test_a_policy_that_is_not_known_restarts_nothing(policy: str) -> None:
    assert read_restart_policy(PodSpec(restart_policy=policy)) == "Never"


def test_a_pod_with_a_container_that_is_not_restarted_counts_as_not_restarted() -> None:
    once = Container(name="once", restart_policy="Never")
    spec = PodSpec(restart_policy="Always", containers=[Container(), once])
    assert read_restart_policy(spec) == "Never"
