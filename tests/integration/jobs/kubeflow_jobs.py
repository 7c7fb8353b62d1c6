"""Jobs of Kubeflow's training operator as users write them, with a GPU for each replica."""

from typing import Any

from tests.integration.cycle.two_projects import Scene
from tests.integration.jobs.looks import HALF, container, pods

API = "/apis/kubeflow.org/v1/namespaces/team-a"
NAME = "train"
ROLE = "training.kubeflow.org/replica-type"
INDEX = "training.kubeflow.org/replica-index"
#: More than half of the cards: a job of this size does not fit beside the owner of the other half.
SIZE = HALF + 1
#: For each kind the field with its replicas, the type of the one that leads, and the container.
FIELDS = {
    "PyTorchJob": ("pytorchReplicaSpecs", "Master", "pytorch"),
    "TFJob": ("tfReplicaSpecs", "Chief", "tensorflow"),
    "XGBoostJob": ("xgbReplicaSpecs", "Master", "xgboost"),
    "JAXJob": ("jaxReplicaSpecs", "", "jax"),
    "PaddleJob": ("paddleReplicaSpecs", "Master", "paddle"),
}
#: A program takes a while to stop, in which the operator sees its pod terminate.
STOPS = {"simulation.ballast.dev/stop-seconds": "2"}


def replicas(kind: str, n_pods: int, policy: str = "", exit_code: str = "") -> dict[str, Any]:
    """Replicas of one type; their programs end with this code when they are stopped."""
    notes = STOPS | ({"simulation.ballast.dev/exit-code": exit_code} if exit_code else {})
    spec = {"containers": [container(1, name=FIELDS[kind][2])]}
    made = {"replicas": n_pods, "template": {"metadata": {"annotations": notes}, "spec": spec}}
    return made | ({"restartPolicy": policy} if policy else {})


def whole(kind: str, policy: str = "", exit_code: str = "") -> dict[str, Any]:
    """`SIZE` replicas, one of them the leader if the kind has one."""
    leader = FIELDS[kind][1]
    if not leader:
        return {"Worker": replicas(kind, SIZE, policy, exit_code)}
    return {
        leader: replicas(kind, 1, policy, exit_code),
        "Worker": replicas(kind, SIZE - 1, policy, exit_code),
    }


def submit(scene: Scene, kind: str, specs: dict[str, Any], **spec: Any) -> None:
    """Create the job `train` of these replicas."""
    meta = {"name": NAME, "namespace": "team-a"}
    body = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": meta}
    scene.admin.post(f"{API}/{kind.lower()}s", body | {"spec": {FIELDS[kind][0]: specs} | spec})


def conditions(scene: Scene, kind: str = "PyTorchJob") -> set[str]:
    """What holds of the job."""
    found = scene.admin.get(f"{API}/{kind.lower()}s/{NAME}").get("status") or {}
    return {each["type"] for each in found.get("conditions") or () if each["status"] == "True"}


async def until_it_is(scene: Scene, condition: str, kind: str = "PyTorchJob") -> None:
    """Until the condition holds of the job."""
    await scene.until(lambda: condition in conditions(scene, kind), f"the job to be {condition}")


async def until_made(scene: Scene, n_pods: int) -> None:
    """Until the operator has created so many pods."""
    await scene.until(
        lambda: len(pods(scene, {"training.kubeflow.org/job-name": NAME})) == n_pods,
        f"{n_pods} pods",
    )
