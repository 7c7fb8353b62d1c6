"""Golden bodies of the four verbs, as the real scheduler sends and reads them."""

import json
from typing import Any

import pytest

from extender.http.wire import (
    BadBodyError,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    decode,
    encode,
)

POD = {
    "metadata": {"name": "a", "namespace": "team-a", "uid": "1-2", "resourceVersion": "7"},
    "spec": {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "schedulerName": "ballast-scheduler",
    },
    "status": {"phase": "Pending"},
}
TEXT = "PlannedElsewhere: the pod is planned on another node"


def body(**keys: Any) -> bytes:
    return json.dumps(keys).encode()


def told(answer: Any) -> Any:
    return json.loads(encode(answer))


def test_filter_with_names_answers_with_names() -> None:
    args = decode(body(Pod=POD, Nodes=None, NodeNames=["n1", "n2"]), ExtenderArgs)
    assert args.pod.metadata.uid == "1-2"
    assert args.pod.spec.containers[0].resources.requests == {"cpu": "1"}
    assert args.names == ["n1", "n2"]
    assert told(ExtenderFilterResult(["n2"], {"n1": TEXT})) == {
        "NodeNames": ["n2"],
        "FailedNodes": {"n1": TEXT},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


@pytest.mark.parametrize(
    "lists",
    [
        {"Nodes": None, "NodeNames": None},
        {"Nodes": None, "NodeNames": []},
        {},
    ],
)
def test_no_names_are_answered_with_an_empty_list_of_names(lists: dict[str, Any]) -> None:
    assert decode(body(Pod=POD, **lists), ExtenderArgs).names == []
    assert told(ExtenderFilterResult())["NodeNames"] == []


@pytest.mark.parametrize("items", [None, [], [{"metadata": {"name": "n1"}}], [7]])
def test_whole_nodes_are_refused_with_what_to_do(items: Any) -> None:
    sent = body(Pod=POD, Nodes={"metadata": {}, "items": items}, NodeNames=None)
    with pytest.raises(BadBodyError, match="nodeCacheCapable: true"):
        _ = decode(sent, ExtenderArgs).names


def test_prioritize_answers_a_bare_list() -> None:
    assert told([HostPriority("n1", 0), HostPriority("n2", 10)]) == [
        {"Host": "n1", "Score": 0},
        {"Host": "n2", "Score": 10},
    ]


def test_preempt_with_uids_is_read_and_answered_by_uid() -> None:
    sent = body(
        Pod=POD,
        NodeNameToVictims=None,
        NodeNameToMetaVictims={"n1": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 1}},
    )
    candidates = decode(sent, ExtenderPreemptionArgs).node_name_to_meta_victims
    assert candidates == {"n1": MetaVictims([MetaPod("v1")], 1)}
    assert candidates is not None
    assert told(ExtenderPreemptionResult(candidates)) == {
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 1}}
    }


@pytest.mark.parametrize("pods", [None, []])
def test_preempt_takes_a_candidate_without_victims(pods: Any) -> None:
    sent = body(Pod=POD, NodeNameToMetaVictims={"n1": {"Pods": pods, "NumPDBViolations": 0}})
    candidates = decode(sent, ExtenderPreemptionArgs).node_name_to_meta_victims
    assert candidates is not None
    assert not candidates["n1"].pods


def test_preempt_without_candidates_is_answered_with_an_empty_map() -> None:
    assert decode(body(Pod=POD), ExtenderPreemptionArgs).node_name_to_meta_victims is None
    assert told(ExtenderPreemptionResult()) == {"NodeNameToMetaVictims": {}}


def test_bind_is_read_and_answered() -> None:
    sent = body(PodName="a", PodNamespace="team-a", PodUID="1-2", Node="n1")
    args = decode(sent, ExtenderBindingArgs)
    assert (args.pod_name, args.pod_namespace, args.pod_uid, args.node) == (
        "a",
        "team-a",
        "1-2",
        "n1",
    )
    assert told(ExtenderBindingResult()) == {"Error": ""}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"Pod":null,"NodeNames":["n1"]}',
        b'{"Pod":{"metadata":{}},"NodeNames":"n1"}',
        b'{"Pod":{"metadata":{}},"NodeNames":[1]}',
        b'{"Pod":{"metadata":{"name":7}},"NodeNames":[]}',
        b'{"Pod":{"metadata":{"name":"\xff"}},"NodeNames":[]}',
        b'{"Pod":{"metadata":{}},"Nodes":{"items":["\xff"]}}',
        b'{"Pod":{"metadata":{}}',
        b"[" * 200_000,
        b'{"Pod":{"metadata":{},"spec":' + b'{"x":' * 200_000,
    ],
)
def test_what_is_not_filter_arguments_is_refused(sent: bytes) -> None:
    with pytest.raises(BadBodyError, match="the body is not ExtenderArgs"):
        decode(sent, ExtenderArgs)


def test_a_negative_count_of_violations_is_refused() -> None:
    sent = body(Pod=POD, NodeNameToMetaVictims={"n1": {"Pods": [], "NumPDBViolations": -1}})
    with pytest.raises(BadBodyError):
        decode(sent, ExtenderPreemptionArgs)
