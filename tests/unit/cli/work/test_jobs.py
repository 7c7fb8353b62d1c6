"""The Jobs of `ballast run`."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from extender.api import names
from extender.cli.work.jobs import Ask, BadAskError, documents, submit
from extender.kube.errors import RequestRefused
from extender.kube.transport import Call


class TestJobs:
    def asked(self, **given: Any) -> Ask:
        words = {"gpus": "1", "checkpoint": "", "run_time": "", "envs": ()}
        return Ask.of(**{"name": "j", "image": "i", **words, **given})

    def test_plain_job_is_one_object_without_a_group(self) -> None:
        (job,) = documents(self.asked(command=("a", "b")), "n")
        template = job["spec"]["template"]
        assert template["spec"]["containers"][0]["command"] == ["a", "b"]
        assert template["spec"]["containers"][0]["resources"] == {"limits": {names.NVIDIA_GPU: "1"}}
        assert template["metadata"] == {"labels": {names.LABEL_WORKLOAD_KIND: "training"}}
        assert "parallelism" not in job["spec"]

    def test_half_a_gpu_is_an_annotation(self) -> None:
        (job,) = documents(self.asked(gpus="0.5", checkpoint="30m"), "n")
        template = job["spec"]["template"]
        assert template["metadata"]["annotations"] == {
            names.ANNOTATION_FRACTION: "0.5",
            names.ANNOTATION_CHECKPOINT: "1800",
        }
        assert "resources" not in template["spec"]["containers"][0]

    def test_elastic_gang_states_its_minimum_and_run_time(self) -> None:
        made, job = documents(self.asked(pods=4, min_pods=2, run_time="1d"), "n")
        assert made["spec"] == {"minMember": 2, "expectedRunSeconds": 86_400}
        assert job["spec"]["parallelism"] == job["spec"]["completions"] == 4
        notes = job["spec"]["template"]["metadata"]["annotations"]
        assert notes[names.ANNOTATION_MIN_MEMBER] == "2"

    @pytest.mark.parametrize(
        ("given", "word"),
        [
            ({"gpus": "1.5"}, "part of one GPU"),
            ({"gpus": "0"}, "part of one GPU"),
            ({"name": "Ä"}, "is not a name"),
            ({"image": ""}, "--image is empty"),
            ({"pods": 2, "min_pods": 3}, "--min-pods"),
            ({"run_time": "1w"}, "--run-time"),
            ({"envs": ("A",)}, "NAME=VALUE"),
        ],
    )
    def test_what_cannot_be_meant_is_one_sentence(self, given: Any, word: str) -> None:
        with pytest.raises(BadAskError, match=word):
            self.asked(**given)


class Server:
    """An API server that creates everything, except pods if it `refuses` them."""

    def __init__(self, refuses: str = "") -> None:
        self._refuses = refuses
        self.calls: list[tuple[str, str, Mapping[str, str]]] = []
        self.bodies: list[Any] = []

    async def send(self, call: Call) -> bytes:
        """The object as it was sent."""
        self.calls.append((call.method, call.path, call.query))
        self.bodies.append(call.body)
        if self._refuses and call.path.endswith("/pods"):
            raise RequestRefused(f"{call}: 422 Invalid: {self._refuses}")
        made: Any = call.body
        return json.dumps({**made, "metadata": {**made["metadata"], "uid": "u"}}).encode()


class TestSubmit:
    def submitted(self, server: Server, *, is_dry: bool = False) -> Any:
        objects = documents(Ask(name="j", image="i", run_time=60), "n")
        return asyncio.run(submit(server, objects, is_dry=is_dry))  # type: ignore[arg-type]

    def test_a_pod_of_the_job_is_tried_before_anything_is_created(self) -> None:
        server = Server()
        assert self.submitted(server)["kind"] == "Job"
        (method, path, query), *others = server.calls
        assert (method, path, query) == ("POST", "/api/v1/namespaces/n/pods", {"dryRun": "All"})
        assert all(not query for _, _, query in others)

    def test_the_tried_pod_has_a_controller_as_the_pods_of_the_job_do(self) -> None:
        server = Server()
        self.submitted(server)
        (owner,) = server.bodies[0]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "j", True)

    @pytest.mark.parametrize(
        "words",
        [
            'admission webhook "pods.ballast.dev" denied the request: UnknownProject: why',
            "pods is forbidden: ValidatingAdmissionPolicy 'gpu-pods.ballast.dev' with binding"
            " 'gpu-pods.ballast.dev' denied request: why",
        ],
    )
    def test_nothing_is_created_if_ballast_refuses_its_pods(self, words: str) -> None:
        server = Server(words)
        with pytest.raises(RequestRefused, match="why"):
            self.submitted(server)
        assert len(server.calls) == 1

    @pytest.mark.parametrize(
        "words",
        [
            'pods is forbidden: User "ballast.dev" cannot create resource "pods"',
            'pods "j-x" is forbidden: exceeded quota: compute, requested: pods=1, limited: pods=0',
            'admission webhook "other.example" denied the request: for ballast.dev: not now',
        ],
    )
    def test_refusals_of_others_do_not_keep_the_job_from_being_created(self, words: str) -> None:
        assert self.submitted(Server(words), is_dry=True)["kind"] == "Job"
