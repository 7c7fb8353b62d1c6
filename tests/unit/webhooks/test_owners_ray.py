"""RayCluster, alone, of a RayJob, and of a RayService."""

from tests.support.admission import PodDocument
from tests.support.owners import Document, child, origin_of, reference, unread, written
from webhooks.owners.origin import Gang, Origin

CLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: tune}
spec:
  enableInTreeAutoscaling: true
  headGroupSpec:
    rayStartParams: {dashboard-host: 0.0.0.0}
    template:
      spec:
        containers:
        - {name: ray-head, image: i, resources: {limits: {cpu: "4", memory: 16Gi}}}
  workerGroupSpecs:
  - groupName: a100
    replicas: 3
    minReplicas: 2
    maxReplicas: 10
    template: &gpu
      spec:
        containers:
        - {name: ray-worker, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}
  - groupName: pairs
    replicas: 1
    minReplicas: 1
    maxReplicas: 4
    numOfHosts: 2
    template: *gpu
  - groupName: cpus
    minReplicas: 5
    template: {spec: {containers: [{name: ray-worker, image: i}]}}
"""
GROUPS = (("a100", 2), ("pairs", 2))


def pod_of(cluster: Document, group: str, **labels: str) -> PodDocument:
    told = {
        "ray.io/cluster": cluster["metadata"]["name"],
        "ray.io/node-type": "worker",
        "ray.io/group": group,
    }
    return child(cluster, told | {f"ray.io/{k.replace('_', '-')}": v for k, v in labels.items()})


def test_cluster_needs_the_fewest_workers_that_it_may_have() -> None:
    made = written(CLUSTER)
    assert origin_of(pod_of(made, "a100"), made) == Origin(
        group="raycluster-tune", gang=Gang(4, GROUPS), sub_group="a100"
    )


def test_head_with_a_gpu_is_of_the_gang() -> None:
    made = written(CLUSTER)
    head = made["spec"]["headGroupSpec"]["template"]
    head["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    origin = origin_of(pod_of(made, "headgroup"), made)
    assert origin.gang == Gang(5, (("headgroup", 1), *GROUPS))
    assert origin.sub_group == "headgroup"


def test_suspended_group_is_not_waited_for() -> None:
    made = written(CLUSTER)
    made["spec"]["workerGroupSpecs"][0]["suspend"] = True
    assert origin_of(pod_of(made, "pairs"), made).gang.min_member == 2


def of_ray_job(**spec: bool) -> Document:
    """The cluster as KubeRay creates it for a RayJob."""
    above = reference(unread("ray.io/v1", "RayJob", "sweep"))
    made = written(CLUSTER, ownerReferences=[above])
    made["spec"] |= spec
    return made


def test_ray_job_needs_all_workers_that_it_waits_for() -> None:
    made = of_ray_job(enableInTreeAutoscaling=False)
    groups = made["spec"]["workerGroupSpecs"]
    groups[1] |= {"replicas": 9, "suspend": True}
    assert origin_of(pod_of(made, "a100"), made).gang == Gang(3, (("a100", 3), ("pairs", 0)))
    groups[1] |= {"suspend": False}
    assert origin_of(pod_of(made, "pairs"), made).gang == Gang(11, (("a100", 3), ("pairs", 8)))
    groups[0]["replicas"] = 1
    assert origin_of(pod_of(made, "a100"), made).gang == Gang(10, (("a100", 2), ("pairs", 8)))


def test_ray_job_that_is_scaled_by_ray_needs_the_fewest_workers() -> None:
    made = of_ray_job(enableInTreeAutoscaling=True)
    assert origin_of(pod_of(made, "a100"), made).gang == Gang(4, GROUPS)


def test_cluster_of_a_service_is_inference() -> None:
    made = written(CLUSTER)
    head, worker = pod_of(made, "headgroup", serve="false"), pod_of(made, "a100", serve="true")
    assert origin_of(head, made).work == origin_of(worker, made).work == "inference"
    assert origin_of(pod_of(made, "a100"), made).work == ""
    assert origin_of(worker, made).gang == origin_of(pod_of(made, "a100"), made).gang


def test_submitter_of_a_ray_job_stands_for_itself() -> None:
    labels = {"ray.io/originated-from-crd": "RayJob", "batch.kubernetes.io/job-name": "sweep"}
    assert origin_of(child(unread("batch/v1", "Job", "sweep"), labels)).is_alone
