"""The Jobs of `ballast run`."""

from typing import Any

import pytest

from extender.api import names
from extender.cli.work.jobs import Ask, BadAskError, documents


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
            ({"pods": 2, "min_pods": 3}, "--min-pods"),
            ({"run_time": "1w"}, "--run-time"),
            ({"envs": ("A",)}, "NAME=VALUE"),
        ],
    )
    def test_what_cannot_be_meant_is_one_sentence(self, given: Any, word: str) -> None:
        with pytest.raises(BadAskError, match=word):
            self.asked(**given)
