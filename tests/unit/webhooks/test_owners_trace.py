"""Following owner references upward: how far, by which UID, and with which requests."""

from typing import Any

import pytest

from extender.api.objects import ObjectMeta
from tests.support.owners import NAMESPACE, Document, Shelf, child, meta_of, reference, unread
from webhooks.owners import trace as tracing
from webhooks.owners.batch import COMPLETION_INDEX
from webhooks.owners.origin import MAX_MEMBER, MAX_NAME, Origin, Owner, group_name
from webhooks.owners.reader import OwnerReader
from webhooks.owners.trace import Asked, trace

INDEX = {COMPLETION_INDEX: "0"}


def below(owner: Document, kind: str = "Job", api_version: str = "batch/v1") -> Document:
    """An owner that `owner` owns."""
    made = unread(api_version, kind, f"below-{owner['metadata']['name']}")
    made["metadata"]["ownerReferences"] = [reference(owner)]
    return made


async def followed(pod: Any, *owners: Document) -> tuple[Origin, list[str]]:
    shelf = Shelf(*owners)
    return await trace(meta_of(pod), OwnerReader(shelf.get).read), shelf.asked


async def test_chain_is_followed_to_the_highest_kind_that_is_known() -> None:
    top = unread("jobset.x-k8s.io/v1alpha2", "JobSet", "top")
    top["metadata"]["ownerReferences"] = [reference(unread("example.com/v1", "Campaign", "c"))]
    job = below(top)
    origin, asked = await followed(child(job, INDEX), top, job)
    assert origin.group == "jobset-top"
    assert [path.rpartition("/")[2] for path in asked] == ["below-top", "top"]


async def test_parent_of_another_uid_ends_the_chain() -> None:
    top = unread("jobset.x-k8s.io/v1alpha2", "JobSet", "top")
    job = below(top)
    top["metadata"]["uid"] = "made-again"
    origin, _ = await followed(child(job, INDEX), top, job)
    assert origin == Origin(group="jobset-top")


async def test_controller_of_another_uid_says_nothing() -> None:
    job = unread("batch/v1", "Job", "j")
    pod = child(job, INDEX)
    job["metadata"] |= {"uid": "made-again", "ownerReferences": [reference(job)]}
    origin, _ = await followed(pod, job)
    assert origin == Origin(group="job-j")


async def test_cycle_of_owners_ends() -> None:
    first, second = unread("batch/v1", "Job", "first"), unread("batch/v1", "Job", "second")
    first["metadata"]["ownerReferences"] = [reference(second)]
    second["metadata"]["ownerReferences"] = [reference(first)]
    _, asked = await followed(child(first, INDEX), first, second)
    assert len(asked) == 2


async def test_depth_is_bounded() -> None:
    chain = [unread("batch/v1", "Job", "top")]
    for n in range(20):
        chain.append(below(chain[-1]))
        chain[-1]["metadata"] |= {"name": f"j{n}", "uid": f"u{n}"}
    _, asked = await followed(child(chain[-1], INDEX), *chain)
    assert len(asked) == tracing.MAX_DEPTH + 1


async def test_owner_that_is_no_controller_is_not_followed() -> None:
    top = unread("jobset.x-k8s.io/v1alpha2", "JobSet", "top")
    job = below(top)
    job["metadata"]["ownerReferences"][0]["controller"] = False
    origin, _ = await followed(child(job, INDEX), top, job)
    assert origin.group == f"job-{job['metadata']['name']}"


async def test_version_is_the_references_own() -> None:
    older = unread("kubeflow.org/v1", "MPIJob", "m")
    _, asked = await followed(child(older), older)
    assert asked == [f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/mpijobs/m"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("apiVersion", "batch/.."),
        ("apiVersion", "batch/v1?x"),
        ("apiVersion", "batch/v1%2f"),
        ("apiVersion", "batch/v1#"),
        ("name", "../../../../api/v1/secrets"),
        ("name", "a/status"),
        ("name", "a?watch=true"),
        ("name", ".."),
        ("name", "a%2e"),
        ("name", "a\n"),
        ("name", ""),
    ],
)
async def test_reference_names_no_other_path(field: str, value: str) -> None:
    pod = child(unread("batch/v1", "Job", "j"), INDEX)
    pod.body["metadata"]["ownerReferences"][0][field] = value
    _, asked = await followed(pod)
    assert all(path == f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/j" for path in asked)


@pytest.mark.parametrize("name", ["../x", "a/b", "", " ", "x?y", "\u0430bc", "A" * 300])
async def test_label_names_no_other_path(name: str) -> None:
    pod = child(unread("batch/v1", "Job", "j"), INDEX | {"jobset.sigs.k8s.io/jobset-name": name})
    _, asked = await followed(pod)
    for path in asked:
        group, _, rest = path.removeprefix("/apis/").partition(f"/namespaces/{NAMESPACE}/")
        assert group in ("jobset.x-k8s.io/v1alpha2", "batch/v1")
        assert rest.count("/") == 1
        assert rest.replace("/", "").isalnum()


async def test_nothing_is_read_of_a_pod_without_a_controller() -> None:
    async def never(_asked: Asked) -> Owner | None:
        raise AssertionError

    meta = ObjectMeta(name="p", namespace=NAMESPACE, labels={"ray.io/cluster": "x"} | INDEX)
    assert await trace(meta, never) == Origin()


async def test_gang_larger_than_any_cluster_stays_a_number_that_is_read() -> None:
    job = unread("batch/v1", "Job", "j")
    job["spec"] = {
        "completionMode": "Indexed",
        "completions": 10**12,
        "parallelism": 10**12,
        "template": {"metadata": {"annotations": {"gpu-fraction": "0.5"}}},
    }
    origin, _ = await followed(child(job, INDEX), job)
    assert origin.gang.min_member == MAX_MEMBER


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("job", "train"), "job-train"),
        (("leaderworkerset", "vllm", "0"), "leaderworkerset-vllm-0"),
        (("job", "a.b"), "job-a-b-08eeafef"),
        (("job", "A"), None),
        (("job", "x" * 63), None),
        (("job", "-"), None),
        (("", ""), None),
        (("\u043a", "\ud800"), None),
    ],
)
def test_names_of_groups_are_labels(parts: tuple[str, ...], name: str | None) -> None:
    made = group_name(*parts)
    assert 0 < len(made) <= MAX_NAME
    assert made.strip("-abcdefghijklmnopqrstuvwxyz0123456789") == ""
    assert made[0] != "-"
    assert made[-1] != "-"
    assert name is None or made == name
