"""Any owner gets an answer, never an exception; its pods are changed only once."""

import asyncio
import copy
import json
from typing import Any, Final

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api import names
from extender.api.aliases import GROUP_LABELS, MIN_MEMBER_KEYS
from extender.api.workload import read_min_member, read_sub_groups
from tests.support.admission import PodDocument, request_for, usual_index
from tests.support.owners import NAMESPACE, meta_of
from webhooks.mutate import decide
from webhooks.owners import batch, jobset, kubeflow, leaderworkerset, ray
from webhooks.owners.origin import MAX_MEMBER, Origin
from webhooks.owners.reader import OwnerReader
from webhooks.owners.table import TABLE
from webhooks.owners.trace import trace

INDEX: Final = usual_index()

numbers = st.integers(-3, 9) | st.sampled_from([2**31, 2**63, 10**30])
odd = st.none() | st.booleans() | st.text(max_size=4) | st.floats(allow_nan=False) | numbers
words = st.sampled_from(
    ["Indexed", "InOrder", "LeaderReady", "WaitForWorkersReady", "workers", "Worker", "Launcher"]
)
templates = st.sampled_from(
    [
        {},
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}},
        {"metadata": {"annotations": {"gpu-fraction": "0.5"}}},
        {"spec": {"containers": [{"name": "a"}]}},
    ]
)
keys = st.sampled_from(
    ["parallelism", "completions", "template", "spec", "replicas", "replicatedJobs", "name", "size"]
)
junk = st.recursive(
    numbers | words | templates | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def fields(**named: Any) -> st.SearchStrategy[dict[str, Any]]:
    """An object that may have these fields."""
    return st.fixed_dictionaries({}, optional=named)


pod_names = st.sampled_from(["workers", "headgroup", "worker", "x"])
jobs = fields(parallelism=numbers, completions=numbers, template=templates)
replicas = st.dictionaries(
    st.sampled_from(["Worker", "Launcher", "Master"]), fields(replicas=numbers, template=templates)
)
indexed = numbers.flatmap(
    lambda n: st.just({"completionMode": "Indexed", "completions": n, "parallelism": n})
)
well_formed = st.one_of(
    st.builds(lambda whole, job: job | whole, indexed, jobs),
    fields(
        replicatedJobs=st.lists(
            fields(
                name=pod_names,
                replicas=numbers,
                template=fields(spec=jobs),
                dependsOn=st.lists(fields(name=pod_names), max_size=2),
            ),
            max_size=4,
        ),
        startupPolicy=fields(startupPolicyOrder=st.sampled_from(["InOrder", "AnyOrder"])),
    ),
    fields(
        startupPolicy=st.sampled_from(["LeaderReady", "LeaderCreated"]),
        leaderWorkerTemplate=fields(
            size=numbers, leaderTemplate=templates, workerTemplate=templates
        ),
    ),
    fields(
        pytorchReplicaSpecs=replicas,
        mpiReplicaSpecs=replicas,
        runPolicy=fields(schedulingPolicy=fields(minAvailable=numbers)),
        elasticPolicy=fields(minReplicas=numbers),
        launcherCreationPolicy=words,
    ),
    fields(
        headGroupSpec=fields(template=templates),
        workerGroupSpecs=st.lists(
            fields(groupName=pod_names, minReplicas=numbers, numOfHosts=numbers, suspend=odd),
            max_size=3,
        ),
    ),
)
owners = fields(spec=well_formed | junk, status=fields(succeeded=numbers, failedIndexes=odd) | junk)
label_keys = st.sampled_from(
    [
        batch.COMPLETION_INDEX,
        jobset.NAME,
        jobset.REPLICATED_JOB,
        leaderworkerset.NAME,
        leaderworkerset.GROUP_INDEX,
        leaderworkerset.WORKER_INDEX,
        kubeflow.JOB_NAME,
        kubeflow.OPERATOR,
        kubeflow.REPLICA_TYPE,
        ray.GROUP,
        ray.SERVE,
        "spark-role",
        "spark-app-selector",
        "notebook-name",
        "pod-template-hash",
        *GROUP_LABELS,
        names.LABEL_SUB_GROUP,
        names.LABEL_WORKLOAD_KIND,
    ]
)
label_values = words | st.sampled_from(
    ["0", "1", "train", "mpi-operator", "false", "worker", "training", "A_b.c", "x" * 63]
)
kinds = st.sampled_from(
    [(f"{kind.api_group}/v1".lstrip("/"), kind.kind) for kind in TABLE]
    + [("example.com/v1", "Simulation"), ("v1", "Pod"), ("apps/v1", "DaemonSet"), ("", "")]
)


@st.composite
def made_pods(draw: st.DrawFn) -> PodDocument:
    pod = PodDocument(draw(st.sampled_from(["p-0", "p", "vllm-1-2"])), NAMESPACE)
    pod.asking("nvidia.com/gpu", "1").labelled(
        draw(st.dictionaries(label_keys, label_values, max_size=5))
    )
    if draw(st.booleans()):
        pod.noted({draw(st.sampled_from(MIN_MEMBER_KEYS)): draw(st.sampled_from(["1", "3"]))})
    api_version, kind = draw(kinds)
    name = draw(st.sampled_from(["train", "a.b", "x" * 63, "y" * 253, ""]))
    pod.body["metadata"]["ownerReferences"] = [
        {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}
    ]
    return pod


def traced(pod: PodDocument, owner: dict[str, Any]) -> Origin:
    """What is told of the pod where every read finds `owner`."""
    body = json.dumps({"metadata": {"name": "o", "uid": "u"}} | owner).encode()

    async def get(_path: str) -> bytes:
        return body

    return asyncio.run(trace(meta_of(pod), OwnerReader(get).read))


@settings(max_examples=600)
@given(made_pods(), owners)
def test_any_owner_is_answered_and_applied_once(pod: PodDocument, owner: dict[str, Any]) -> None:
    origin = traced(pod, owner)
    assert 1 <= origin.gang.min_member <= MAX_MEMBER
    decision = decide(request_for(pod), INDEX, origin)
    if not decision.is_allowed:
        return
    after = jsonpatch.apply_patch(copy.deepcopy(pod.body), list(decision.ops))
    meta = after["metadata"]
    notes = meta.get("annotations")
    read_sub_groups(notes, read_min_member(notes, meta["labels"]))
    pod.body = after
    assert decide(request_for(pod), INDEX, traced(pod, owner)).ops == ()


@settings(max_examples=200)
@given(made_pods(), owners, owners)
def test_name_of_the_group_does_not_depend_on_what_was_read(
    pod: PodDocument, first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert traced(pod, first).group == traced(pod, second).group
