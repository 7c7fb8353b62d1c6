"""What the policy gpu-pods refuses in a pod, the author of its template reads at once."""

from typing import Any, Final

import pytest

from tests.integration.webhooks.conftest import Admission, apply_body, manifest

Body = dict[str, Any]
HALF: Final = {"gpu-fraction": "0.5"}
TOLD: Final = "its pods will be refused: "


def _told(admission: Admission, pod: Body) -> list[str]:
    """What the author of a Deployment of such pods is told of a refusal."""
    labels = {"app": "a"}
    template = {"metadata": pod["metadata"] | {"labels": labels}, "spec": pod["spec"]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": admission.api.namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    said = apply_body(admission, body).splitlines()
    return [line for line in said if line.startswith(f"Warning: {TOLD}")]


def secured(**context: Any) -> Body:
    return {"containers": [{"name": "main", "image": "i", "securityContext": context}]}


FAULTS: Final[dict[str, Body]] = {
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "privileged": secured(privileged=True),
    "capability": secured(capabilities={"add": ["CAP_SYS_PTRACE"]}),
    "procMount": secured(procMount="Unmasked") | {"hostUsers": False},
    "hostPath": {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]},
    "nodeName": {"nodeName": "n0"},
    "terminationGracePeriodSeconds": {"terminationGracePeriodSeconds": 3601},
    "NVIDIA_VISIBLE_DEVICES": {
        "containers": [
            {
                "name": "main",
                "image": "i",
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
            }
        ]
    },
}
ALLOWED: Final[dict[str, Body]] = {
    "nothing": {},
    "capability": secured(capabilities={"add": ["NET_BIND_SERVICE"]}),
    "emptyDir": {"volumes": [{"name": "data", "emptyDir": {}}]},
    "terminationGracePeriodSeconds": {"terminationGracePeriodSeconds": 3600},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_refused_in_a_pod_is_told_of_its_template(policies: Admission, fault: str) -> None:
    pod = manifest("pod", HALF, **FAULTS[fault])
    assert "ValidatingAdmissionPolicy 'gpu-pods.ballast.dev'" in policies.refusal(pod)
    (told,) = _told(policies, pod)
    assert fault in told


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_in_a_pod_draws_no_such_words(policies: Admission, name: str) -> None:
    pod = manifest("pod", HALF, **ALLOWED[name])
    assert (policies.refusal(pod), _told(policies, pod)) == ("", [])


def test_a_pod_with_whole_cards_may_have_what_one_with_a_share_may_not(policies: Admission) -> None:
    card = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    for fault in ("hostIPC", "privileged", "hostPath"):
        pod = manifest("pod", **FAULTS[fault])
        pod["spec"]["containers"] = [pod["spec"]["containers"][0] | card]
        assert (policies.refusal(pod), _told(policies, pod)) == ("", [])
