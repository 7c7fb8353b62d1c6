"""What an eviction means to the jobs of Kubeflow's operators, as warnings for their authors.

The training operator counts a pod that terminates as failed, before its program has ended, and each
kind draws its own conclusion: PyTorchJob, JAXJob and PaddleJob restart unless the policy is Never,
XGBoostJob only with ExitCode, and TFJob fails. With ExitCode the job fails later if the program
ends with a code below 128. A job with more replicas than its minimum may end while others wait.

The MPI operator creates the launcher at once, or when all workers are ready. Its Job counts the
launcher's failures. Workers do not end by themselves.

Source: training-operator 1.9.4 `pkg/controller.v1/common/pod.go::ReconcilePods` and
`UpdateJobStatus` of each kind; mpi-operator 0.8.0 `pkg/controller/mpi_job_controller.go`.
"""

from collections.abc import Iterator
from typing import Final

from extender.api import names
from extender.api.aliases import PREEMPTIBILITY_LABELS, first_of
from webhooks.parts import Document

NEVER: Final = "Never"
ON_FAILURE: Final = "OnFailure"
EXIT_CODE: Final = "ExitCode"
#: Kinds whose operator sets Never where no restart policy is stated; for the others OnFailure.
NEVER_BY_DEFAULT: Final = frozenset(("JAXJob", "TFJob", "XGBoostJob"))


def replica_specs(spec: Document) -> list[tuple[str, Document]]:
    """The replica specs by type; the name of the field depends on the kind."""
    found = [value for key, value in spec.items() if key.endswith("ReplicaSpecs") and value]
    return [pair for each in found for pair in each.items()]


def on_eviction(kind: str, spec: Document, name: str, replica: Document) -> Iterator[str]:
    """Warns if the job of the training operator fails when replicas of this type are evicted."""
    labels = (replica["template"].get("metadata") or {}).get("labels") or {}
    if first_of(labels, PREEMPTIBILITY_LABELS) == names.NON_PREEMPTIBLE:
        return
    policy = replica.get("restartPolicy") or (NEVER if kind in NEVER_BY_DEFAULT else ON_FAILURE)
    fails = f"an eviction by Ballast fails this {kind}"
    if kind == "TFJob":
        if not (spec.get("enableDynamicWorker") and name == "Worker"):
            yield (
                f"{fails}, whatever its restartPolicy: give replicas {name!s:.63} the label"
                f" {names.LABEL_PREEMPTIBILITY}: {names.NON_PREEMPTIBLE}, and they run within quota"
            )
        return
    lasting = EXIT_CODE if kind == "XGBoostJob" else ON_FAILURE
    if policy == EXIT_CODE:
        cure = "" if lasting == EXIT_CODE else f"; set {lasting}"
        yield (
            f"{fails} if a program ends with a code below 128 when it is stopped, as torchrun does:"
            f" replicas {name!s:.63} have restartPolicy: {policy}{cure}"
        )
    elif policy == NEVER or lasting == EXIT_CODE:
        yield f"{fails}: replicas {name!s:.63} have restartPolicy: {policy}; set {lasting}"


def on_end(kind: str, spec: Document) -> Iterator[str]:
    """Warns if replicas keep or get GPUs after the job has ended."""
    policy = spec.get("runPolicy") or {}
    if (policy.get("cleanPodPolicy") or spec.get("cleanPodPolicy") or "None") != "None":
        return
    cure = "set runPolicy.cleanPodPolicy: Running"
    stated = (policy.get("schedulingPolicy") or {}).get("minAvailable")
    if kind == "MPIJob":
        yield f"the workers of this MPIJob keep their GPUs after it has ended: {cure}"
    elif stated or spec.get("elasticPolicy"):
        yield f"replicas that wait for GPUs when this {kind} ends start afterwards: {cure}"


def on_start(spec: Document) -> Iterator[str]:
    """Warns if the launcher of an MPIJob (v2beta1), which has no GPU, starts before its workers."""
    if spec.get("launcherCreationPolicy") != "WaitForWorkersReady":
        yield (
            "the launcher of this MPIJob starts at once, and fails while its workers wait for GPUs:"
            " set launcherCreationPolicy: WaitForWorkersReady"
        )
