"""Jobs that are read because their gangs have fewer pods than stated."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest

from extender.api.events import Removed, Upserted
from extender.api.jobs import Job, JobSpec, JobStatus
from extender.api.objects import (
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSchedulingGroup,
    PodSpec,
    PodTemplateSpec,
)
from extender.cycle.keepers.job_sizes import JobReader, size_of
from extender.kube.client import Client
from extender.kube.errors import NotFound, Unavailable
from extender.state.cluster import ClusterState
from tests.support.builders import pod, project

pytestmark = pytest.mark.looptime


def job(parallelism: int, completions: int | None = None, **status: str) -> Job:
    spec = JobSpec(parallelism=parallelism, completions=completions, completion_mode="Indexed")
    return Job(metadata=ObjectMeta(uid="job-1"), spec=spec, status=JobStatus(**status))


class Scene:
    """Three pods of a Job that was made for four, and the API server's answer."""

    def __init__(self, answer: Job | Exception) -> None:
        self.state = ClusterState()
        self.state.apply(Upserted(project("team-a").build()))
        for name in "abc":
            member = pod(name).needs(1000).gang("g", 4).made_by("job-1")
            self.state.apply(Upserted(member.build()))
        client: Any = create_autospec(Client, instance=True)
        client.get.side_effect = self._get
        self.reader = JobReader(client, self.state)
        self.answer = answer
        self.n_reads = 0

    async def _get(self, _resource: Any, name: str, namespace: str) -> Job:
        assert (namespace, name) == ("team-a", "job")
        self.n_reads += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def min_member_after(self, seconds: float) -> int:
        for _ in range(round(seconds)):
            await self.reader.keep()
            await asyncio.sleep(1)
        await self.reader.keep()
        return self.state.workloads()["team-a/g"].min_member


async def test_a_job_is_read_once_its_gang_was_short_of_pods_for_some_seconds() -> None:
    scene = Scene(job(3, 3))
    assert await scene.min_member_after(4) == 4
    assert scene.n_reads == 0
    assert await scene.min_member_after(1) == 3
    assert scene.n_reads == 1


async def test_it_is_read_again_while_its_gang_is_short() -> None:
    scene = Scene(job(4, 4))
    assert await scene.min_member_after(6) == 4
    scene.answer = job(4, 4, failed_indexes="2")
    assert await scene.min_member_after(10) == 3
    assert scene.n_reads == 2


async def test_its_size_is_forgotten_once_its_gang_has_all_its_pods() -> None:
    scene = Scene(job(3, 3))
    await scene.min_member_after(6)
    member = pod("d").needs(1000).gang("g", 4).made_by("job-1")
    scene.state.apply(Upserted(member.build()))
    assert await scene.min_member_after(1) == 4
    scene.state.apply(Removed(Pod, "uid-d", "team-a", "d"))
    assert await scene.min_member_after(1) == 4


@pytest.mark.parametrize(
    "answer", [NotFound("gone"), Job(metadata=ObjectMeta(uid="job-2"), spec=JobSpec())]
)
async def test_a_job_that_is_gone_says_nothing(answer: Job | Exception) -> None:
    scene = Scene(job(3, 3))
    await scene.min_member_after(6)
    scene.answer = answer
    assert await scene.min_member_after(10) == 4


async def test_what_is_known_counts_while_the_api_server_does_not_answer() -> None:
    scene = Scene(job(3, 3))
    await scene.min_member_after(6)
    scene.answer = Unavailable("down")
    assert await scene.min_member_after(10) == 3
    assert scene.n_reads == 2


def test_an_index_that_failed_for_good_gets_no_more_pods() -> None:
    assert size_of(job(4, 4, failed_indexes="0,2-3")) == 1
    assert size_of(job(2, 4, failed_indexes="0")) == 2
    assert size_of(job(5)) == 5


def test_a_gang_with_a_size_from_elsewhere_does_not_follow_its_job() -> None:
    stated = ObjectMeta(annotations={"ballast.dev/min-member": "4"})
    native = PodSpec(scheduling_group=PodSchedulingGroup(pod_group_name="g"))
    for template in (PodTemplateSpec(metadata=stated), PodTemplateSpec(spec=native)):
        spec = JobSpec(parallelism=3, template=template)
        assert size_of(Job(metadata=ObjectMeta(), spec=spec)) is None
    for kind, size in (("JobSet", None), ("CronJob", 3)):
        owner = OwnerReference(kind=kind, name="x", uid="u", controller=True)
        made = Job(metadata=ObjectMeta(owner_references=[owner]), spec=JobSpec(parallelism=3))
        assert size_of(made) == size
