"""Inputs from the API server and kube-scheduler: reviews, the four verbs, objects, pods."""

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from extender.api.events import Upserted
from extender.api.kinds import KINDS, Row
from extender.api.objects import Node, Pod
from extender.api.reasons import Refused
from extender.http.claim import read_claim
from extender.http.handlers import Verbs
from extender.http.wire import BadBodyError
from extender.kube.errors import Undecodable
from extender.kube.resources import (
    DEPARTMENTS,
    GPU_NODES,
    MODEL,
    NODE_POOLS,
    NODES,
    POD_GROUPS,
    PODS,
    PROJECTS,
    TOPOLOGIES,
    USAGES,
    Resource,
)
from extender.kube.wire import decode_line, decode_object, decode_page
from extender.ledger.rows import add_rows
from extender.state.cluster import ClusterState
from tests.fuzz.mutation import fuzz, told
from tests.fuzz.seeds import calls, encoded, live_pods, nodes, objects, reviews
from tests.support.admission import usual_index
from tests.support.builders import gpu_node, part, pod, project, row
from tests.unit.http.rig import running, unreachable_kubeconfig
from webhooks.kinds.judge import judge_kind
from webhooks.mutate import decide
from webhooks.review import Decision, ReviewError, answer, read

INDEX = usual_index()
OURS: dict[str, Resource[Any]] = {
    "GpuDepartment": DEPARTMENTS,
    "GpuProject": PROJECTS,
    "GpuNodePool": NODE_POOLS,
    "GpuTopology": TOPOLOGIES,
    "GpuPodGroup": POD_GROUPS,
    "GpuNode": GPU_NODES,
    "GpuUsage": USAGES,
}


#: Removed when the process ends.
FOLDERS: "list[tempfile.TemporaryDirectory[str]]" = []


def answered(decision: Decision, uid: str) -> None:
    """Assert that the decision can be encoded and a refusal is a sentence."""
    body = json.loads(answer(uid, decision))
    assert body["response"]["allowed"] == decision.is_allowed
    if not decision.is_allowed:
        assert decision.code in (400, 403, 422)
        assert len(decision.message) > 20


@fuzz(reviews())
def test_a_review_of_a_pod_is_answered(body: bytes) -> None:
    try:
        request = read(body)
    except ReviewError as error:
        told("AdmissionReview" in str(error))
        return
    answered(decide(request, INDEX), request.uid)


def _reviews_of_objects() -> list[bytes]:
    made = []
    for kind, trees in objects().items():
        for operation in ("CREATE", "UPDATE", "DELETE"):
            for tree in trees:
                gvk = {"group": "ballast.dev", "version": "v1alpha1", "kind": kind}
                request = {"uid": "u", "kind": gvk, "operation": operation, "name": "x"}
                request |= {"object": tree, "oldObject": tree, "namespace": "team-a"}
                made.append({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                             "request": request})  # fmt: skip
    return encoded(*made)


@fuzz(_reviews_of_objects())
def test_a_review_of_our_kinds_is_answered(body: bytes) -> None:
    try:
        request = read(body)
    except ReviewError:
        return
    answered(judge_kind(request, INDEX), request.uid)


def _verb(name: str) -> Callable[[], None]:
    """A test of one verb on a book with a node, a project and a row."""
    loop = asyncio.new_event_loop()
    FOLDERS.append(tempfile.TemporaryDirectory())
    rig = running(unreachable_kubeconfig(Path(FOLDERS[-1].name)))
    made: list[Verbs] = []

    async def furnish() -> Verbs:
        found = await rig.__aenter__()
        held = row(pod("h").build(), part(0, 500))
        planned = row(pod("p").build(), part(1, 500), epoch=7)
        found.know(
            project("team-a").quota(4).build(), gpu_node("n1", 2).holds(held, planned).build()
        )
        found.be_synced()
        found.extender.binder.deadline_s = 0.0005
        return found.extender.verbs

    @fuzz(calls()[name])
    def test(body: bytes) -> None:
        if not made:
            made.append(loop.run_until_complete(furnish()))
        verb = getattr(made[0], name)
        try:
            answer_of_verb = loop.run_until_complete(verb(body))
        except BadBodyError as error:
            told("the body is not Extender" in str(error) or " is not " in str(error))
            return
        assert isinstance(json.loads(answer_of_verb.body), dict | list)

    return test


test_filter_answers = _verb("filter")
test_prioritize_answers = _verb("prioritize")
test_preempt_answers = _verb("preempt")
test_bind_answers = _verb("bind")


@fuzz(encoded(*(tree for trees in objects().values() for tree in trees)))
def test_our_objects_are_taken_into_the_model_or_left_out(body: bytes) -> None:
    _take(body, OURS.get(_kind_of(body), GPU_NODES))


@fuzz(encoded(*nodes()))
def test_nodes_are_taken_into_the_model_or_left_out(body: bytes) -> None:
    _take(body, NODES)


@fuzz(encoded(*live_pods()))
def test_pods_are_taken_into_the_model_or_left_out(body: bytes) -> None:
    _take(body, PODS)


def _kind_of(body: bytes) -> str:
    try:
        tree = json.loads(body)
        return str(tree["kind"]) if isinstance(tree, dict) else ""
    except (ValueError, KeyError, RecursionError):
        return ""


def _take(body: bytes, resource: Resource[Any]) -> None:
    try:
        made = decode_object(resource, body)
    except Undecodable:
        return
    if resource not in MODEL:
        return
    state = ClusterState()
    for kind, trees in objects().items():
        for tree in trees:
            if OURS[kind] is not resource and OURS[kind] in MODEL:
                state.apply(Upserted(decode_object(OURS[kind], json.dumps(tree).encode())))
    state.apply(Upserted(made))
    state.workloads()
    state.apply(Upserted(made))


@fuzz(encoded(*live_pods()))
def test_what_a_pod_says_is_read_or_said_to_be_wrong(body: bytes) -> None:
    try:
        made = msgspec.json.decode(body, type=Pod)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return
    claim = read_claim(made)
    problem = claim.facts.problem
    if problem is not None:
        assert isinstance(problem, Refused)
        assert len(str(problem)) > 20
    for _, n_pods in claim.facts.stated.sub_groups:
        assert 0 <= n_pods <= 999_999
    assert 0 <= claim.facts.stated.compute_request_milli <= 1000
    assert 0 <= claim.facts.stated.compute_limit_milli <= 1000


@fuzz(encoded(*objects()["GpuNode"]))
def test_rows_of_the_ledger_are_added_or_refused(body: bytes) -> None:
    try:
        node = decode_object(GPU_NODES, body)
    except Undecodable:
        return
    after = add_rows(node, node.spec.rows)
    if not isinstance(after, Refused):
        again = msgspec.json.decode(msgspec.json.encode(list(after)), type=list[Row])
        assert again == list(after)


def _lines() -> list[bytes]:
    return encoded(*({"type": kind, "object": tree} for kind in ("ADDED", "BOOKMARK", "ERROR")
                     for tree in live_pods()[:2]))  # fmt: skip


@fuzz(_lines())
def test_a_line_of_a_watch_is_read_or_said_to_be_none(body: bytes) -> None:
    try:
        line = decode_line(PODS, body)
    except Undecodable:
        return
    assert isinstance(line.type, str)


def _pages() -> list[bytes]:
    meta = {"resourceVersion": "7", "continue": "x"}
    return encoded({"metadata": meta, "items": live_pods()[:3]})


@fuzz(_pages())
def test_one_bad_object_hides_no_other_of_its_page(body: bytes) -> None:
    try:
        page = decode_page(PODS, body)
    except Undecodable:
        return
    assert len(page.items) + len(page.skipped) >= 0


def test_there_is_a_seed_of_every_kind() -> None:
    assert set(objects()) == {kind.__name__ for kind in KINDS}
    assert msgspec.json.decode(json.dumps(nodes()[0]), type=Node)
