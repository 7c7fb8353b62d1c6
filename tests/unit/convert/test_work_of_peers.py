"""Workloads of other schedulers as Jobs, groups and annotations of Ballast."""

from collections.abc import Callable, Iterable

import msgspec
import pytest

from extender.api import names
from extender.api.demand import Demand, read_demand
from extender.api.objects import Pod
from extender.convert import hami, kai, slurm, volcano
from extender.convert.fields import Converted, Manifest
from extender.kube.resources import PODS
from extender.kube.wire import decode_object
from tests.unit.convert.accepted import assert_accepted, lost, objects, of_kind


def demand_of(template: Manifest) -> Demand:
    """What Ballast reads in a converted pod template."""
    meta = {"name": "p", "namespace": "n", **template.get("metadata", {})}
    pod = decode_object(PODS, msgspec.json.encode({"metadata": meta, "spec": template["spec"]}))
    assert isinstance(pod, Pod)
    demand = read_demand(pod)
    assert isinstance(demand, Demand), demand
    return demand


HAMI = """
apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod
  namespace: team
  annotations: {hami.io/node-scheduler-policy: binpack, nvidia.com/use-gputype: A100}
spec:
  schedulerName: hami-scheduler
  containers:
  - name: c
    image: ubuntu
    env: [{name: CUDA_OVERSUBSCRIBE, value: "true"}]
    resources:
      limits: {nvidia.com/gpu: 2, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30, cpu: 4}
"""


def test_hami_memory_and_cores_become_annotations_that_ballast_reads() -> None:
    done = hami.convert(objects(HAMI))
    assert_accepted(done)
    pod = of_kind(done, "Pod")["gpu-pod"]
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": 4}}
    demand = demand_of(pod)
    assert (demand.devices, demand.gpu_memory_mib) == (2, 3000)
    assert pod["metadata"]["annotations"]["gpu-compute-request"] == "0.3"
    assert pod["metadata"]["annotations"]["nvidia.com/use-gputype"] == "A100"
    told = lost(done)
    assert len(told) == 2
    assert any("node-scheduler-policy=binpack" in each for each in told)
    assert any("CUDA_OVERSUBSCRIBE" in each for each in told)


@pytest.mark.parametrize(
    ("limits", "milli"),
    [
        ("{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 25}", 250),
        ("{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 100}", 1000),
        ("{nvidia.com/gpu: 1}", 1000),
    ],
)
def test_hami_percentage_becomes_fraction_and_all_of_it_a_whole_gpu(
    limits: str, milli: int
) -> None:
    container = f"{{name: c, image: i, resources: {{limits: {limits}}}}}"
    text = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: j, namespace: n, uid: x}}
spec: {{template: {{spec: {{containers: [{container}]}}}}}}
"""
    done = hami.convert(objects(text))
    job = of_kind(done, "Job")["j"]
    assert "uid" not in job["metadata"]
    assert demand_of(job["spec"]["template"]).milli == milli
    assert not done.lost


VCJOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: mpi, namespace: team}
spec:
  minAvailable: 3
  schedulerName: volcano
  queue: vision
  maxRetry: 4
  plugins: {ssh: [], svc: []}
  tasks:
  - replicas: 1
    name: master
    policies: [{event: TaskCompleted, action: CompleteJob}]
    template:
      metadata: {annotations: {gpu-fraction: "0.5"}}
      spec: {restartPolicy: OnFailure, containers: [{name: m, image: i}]}
  - replicas: 2
    name: worker
    template:
      spec:
        containers:
        - name: w
          image: i
          resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 2048}}
"""


def test_volcano_job_becomes_a_job_for_each_task_in_one_group() -> None:
    done = volcano.convert(objects(VCJOB))
    assert_accepted(done)
    group = of_kind(done, "GpuPodGroup")["mpi"]["spec"]
    assert group["minMember"] == 3
    assert group["subGroups"] == [
        {"name": "master", "minMember": 1},
        {"name": "worker", "minMember": 2},
    ]
    jobs = of_kind(done, "Job")
    worker = jobs["mpi-worker"]["spec"]
    assert (worker["parallelism"], worker["completions"], worker["backoffLimit"]) == (2, 2, 4)
    labels = worker["template"]["metadata"]["labels"]
    assert labels[names.LABEL_POD_GROUP] == "mpi"
    assert labels[names.LABEL_SUB_GROUP] == "worker"
    assert labels[names.LABEL_PROJECT] == "vision"
    assert demand_of(worker["template"]).gpu_memory_mib == 2048
    told = lost(done)
    for word in ("spec.plugins", "tasks.master.policies"):
        assert any(word in each for each in told), (word, told)


def test_volcano_task_without_gpus_is_not_counted_in_the_group_that_waits_for_gpus() -> None:
    done = volcano.convert(objects(VCJOB.replace('{gpu-fraction: "0.5"}', "{}")))
    assert_accepted(done)
    group = of_kind(done, "GpuPodGroup")["mpi"]["spec"]
    assert (group["minMember"], "subGroups" in group) == (2, False)
    jobs = of_kind(done, "Job")
    assert names.LABEL_POD_GROUP not in jobs["mpi-master"]["spec"]["template"]["metadata"]["labels"]
    labels = jobs["mpi-worker"]["spec"]["template"]["metadata"]["labels"]
    assert labels[names.LABEL_POD_GROUP] == "mpi"
    assert any("tasks.master: it requests no GPU" in each for each in lost(done))


def test_volcano_job_without_gpus_becomes_jobs_without_a_group() -> None:
    text = VCJOB.replace('{gpu-fraction: "0.5"}', "{}").replace("volcano.sh/vgpu", "example.com/x")
    done = volcano.convert(objects(text))
    assert [each["kind"] for each in done.objects] == ["Job", "Job"]
    assert any("spec.minAvailable=3: no task requests GPUs" in each for each in lost(done))


def test_object_whose_name_is_generated_is_named_by_its_prefix() -> None:
    done = volcano.convert(objects(VCJOB.replace("name: mpi,", "generateName: mpi-,")))
    assert_accepted(done)
    assert set(of_kind(done, "GpuPodGroup")) == {"mpi"}
    assert set(of_kind(done, "Job")) == {"mpi-master", "mpi-worker"}
    assert "Job team/mpi-: metadata.generateName=mpi-: there is no counterpart" in lost(done)


KAI_WORK = """
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: pg, namespace: team, labels: {kai.scheduler/queue: vision}}
spec:
  minMember: 4
  queue: vision
  priorityClassName: train
  preemptibility: non-preemptible
  topologyConstraint: {topology: net, requiredTopologyLevel: rack}
  subGroups: [{name: a, minMember: 2}, {name: b, parent: a, minMember: 2}]
  schedulingBackoff: -1
---
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: net}
spec: {levels: [{nodeLabel: zone}, {nodeLabel: rack}]}
---
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: h100}
spec: {partitionLabelValue: h100, placementStrategy: {gpu: spread, cpu: binpack}, kValue: 0.5}
"""


def test_kai_pod_group_and_topology() -> None:
    done = kai.convert(objects(KAI_WORK))
    assert_accepted(done)
    group = of_kind(done, "GpuPodGroup")["pg"]["spec"]
    assert group["preemptibility"] == "NonPreemptible"
    assert group["topologyConstraint"] == {"topology": "net", "requiredTopologyLevel": "rack"}
    assert group["subGroups"][1] == {"name": "b", "parent": "a", "minMember": 2}
    pool = of_kind(done, "GpuNodePool")["h100"]["spec"]
    assert pool["nodeSelector"] == {"kai.scheduler/node-pool": "h100"}
    assert pool["placement"] == {"gpu": "Spread"}
    assert len(lost(done)) == 3


KAI_JOB = """
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: fast}
spec: {partitionLabelValue: h100}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  namespace: team
  labels:
    kai.scheduler/queue: q
    kai.scheduler/preemptibility: non-preemptible
    kai.scheduler/node-pool: h100
  annotations: {kai.scheduler/topology: net, kai.scheduler/topology-required-placement: rack}
spec:
  template:
    metadata:
      annotations: {kai.scheduler/gpu-device-affinity: app=x, kai.scheduler/topology: near}
    spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
"""


def test_words_that_kai_reads_on_the_owner_of_pods_are_moved_to_the_pods() -> None:
    done = kai.convert(objects(KAI_JOB))
    assert_accepted(done)
    meta = of_kind(done, "Job")["j"]["spec"]["template"]["metadata"]
    assert meta["labels"]["kai.scheduler/preemptibility"] == "non-preemptible"
    assert meta["annotations"]["kai.scheduler/topology-required-placement"] == "rack"
    assert meta["annotations"]["kai.scheduler/topology"] == "near", "the pods' own comes first"
    assert meta["annotations"][names.ANNOTATION_NODE_POOLS] == "h100"


def test_word_of_kai_on_pods_without_a_counterpart_is_reported() -> None:
    assert lost(kai.convert(objects(KAI_JOB))) == [
        "Job team/j: kai.scheduler/gpu-device-affinity=app=x: there is no counterpart"
    ]


@pytest.mark.parametrize(
    ("convert", "key"),
    [
        (kai.convert, "pod-group-name"),
        (volcano.convert, "scheduling.k8s.io/group-name"),
        (volcano.convert, "scheduling.volcano.sh/group-name"),
    ],
)
def test_pod_that_names_its_group_by_annotation_joins_the_converted_group(
    convert: Callable[[Iterable[Manifest]], Converted], key: str
) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    meta = {"name": "p", "namespace": "team", "annotations": {key: "pg"}}
    made: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    pod = of_kind(convert([made]), "Pod")["p"]
    assert pod["metadata"]["labels"] == {names.LABEL_POD_GROUP: "pg"}


def test_namespace_of_pods_that_name_a_queue_of_volcano_by_annotation_is_listed() -> None:
    text = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: vision}
spec: {}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team, annotations: {scheduling.volcano.sh/queue-name: vision}}
spec: {containers: [{name: c, image: i}]}
"""
    project = of_kind(volcano.convert(objects(text)), "GpuProject")["vision"]
    assert project["spec"]["namespaces"] == ["team"]


SCRIPT = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH -A optics
#SBATCH -p h100
#SBATCH --nodes=4
#SBATCH --gres=gpu:a100:8
#SBATCH --cpus-per-task=16
#SBATCH --mem=128G
#SBATCH -t 1-02:30:00
#SBATCH --array=1-4
#SBATCH --output=out.txt
srun python train.py
"""


def test_slurm_script_becomes_a_gang_that_says_how_long_it_runs() -> None:
    done = slurm.convert({"jobs/train.sh": SCRIPT})
    assert_accepted(done)
    assert of_kind(done, "GpuPodGroup")["train"]["spec"] == {
        "minMember": 4,
        "expectedRunSeconds": 95_400,
    }
    job = of_kind(done, "Job")["train"]["spec"]
    assert job["parallelism"] == 4
    template = job["template"]
    # Not of the Job, where it would count the time in the queue, too.
    assert template["spec"]["activeDeadlineSeconds"] == 95_400
    assert demand_of(template).devices == 8
    requests = template["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "16", "memory": "128Gi"}
    assert template["metadata"]["labels"][names.LABEL_PROJECT] == "optics"
    assert template["metadata"]["annotations"][names.ANNOTATION_NODE_POOLS] == "h100"
    told = lost(done)
    assert any("array=1-4" in each for each in told)
    assert any("image" in each for each in told)
    assert not any("output" in each for each in told)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("10:30", 630), ("2:00:00", 7200), ("1-12", 129_600), ("UNLIMITED", 0)],
)
def test_times_of_slurm(text: str, seconds: int) -> None:
    assert slurm.time_limit_s(text) == seconds


def job_of(*lines: str) -> tuple[Manifest, list[str]]:
    """The Job of a batch script with these options, and what was lost besides the image."""
    text = "".join(f"#SBATCH {line}\n" for line in lines)
    done = slurm.convert({"s.sh": f"#!/bin/bash\n{text}true\n"})
    (job,) = [each for each in done.objects if each["kind"] == "Job"]
    return job["spec"], [str(each) for each in done.lost if each.field != "image"]


@pytest.mark.parametrize(
    ("lines", "pods", "gpus"),
    [
        (["--gres=gpu:4"], 1, 4),
        (["--gres=gpu"], 1, 1),
        (["--gres=gpu:4(S:0,1)"], 1, 4),
        (["--gpus-per-node=4"], 1, 4),
        (["-N 4 -n 8", "--gres=gpu:2 --mem=64G"], 4, 2),
        (["-N2 --gpus 16 # half of them"], 2, 8),
        (["--nodes=2 --ntasks-per-node=4 --gpus-per-task=1"], 2, 4),
        (["--nodes=2 --ntasks 8 --gpus-per-task=2"], 2, 8),
        (["--job-name 'two words' --exclusive --gpus=2"], 1, 2),
    ],
)
def test_size_of_a_batch_script(lines: list[str], pods: int, gpus: int) -> None:
    job, _ = job_of(*lines)
    assert (job.get("parallelism", 1), demand_of(job["template"]).devices) == (pods, gpus)


@pytest.mark.parametrize(
    ("line", "gpus", "told"),
    [
        ("--gres=gpu:a100:4,lscratch:100", 4, ["--gres=gpu:a100:4", "--gres=lscratch:100"]),
        ("--gpus=a100:2,h100:1", 3, ["--gpus=a100:2", "--gpus=h100:1"]),
        ("--gres=gpu:2 --gpus-per-task=${G}", 2, ["--gpus-per-task=${G}"]),
        ("--nodes=${N} --gres=gpu:2", 2, ["--nodes=${N}"]),
        ("--nodes=2-4 --gres=gpu:2", 2, ["--nodes=2-4"]),
        ("--nodes=2-2 --gres=gpu:2", 2, []),
        ("--time=soon --gres=gpu:2", 2, ["--time=soon"]),
        ("--time=UNLIMITED --gres=gpu:2", 2, []),
    ],
)
def test_what_a_batch_script_cannot_carry_over_is_reported(
    line: str, gpus: int, told: list[str]
) -> None:
    job, losses = job_of(line)
    assert demand_of(job["template"]).devices == gpus
    assert len(losses) == len(told)
    assert all(any(f": {field}: " in each for each in losses) for field in told), losses


def test_memory_on_the_line_of_other_options_is_kept() -> None:
    job, _ = job_of("--gres=gpu:2 --mem=64G -c8")
    container = job["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "64Gi"}


def test_hami_amounts_are_quantities() -> None:
    done = hami.convert(objects(HAMI.replace("gpumem: 3000", "gpumem: 3k")))
    assert demand_of(done.objects[0]).gpu_memory_mib == 3000


def test_volcano_tasks_without_names_are_numbered() -> None:
    text = VCJOB.replace("    name: master\n", "").replace("    name: worker\n", "")
    done = volcano.convert(objects(text))
    assert_accepted(done)
    assert sorted(of_kind(done, "Job")) == ["mpi-default0", "mpi-default1"]
