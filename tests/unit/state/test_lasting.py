"""What prevents an autoscaler from removing a node without GPU pods."""

import pytest
from msgspec.structs import replace

from extender.api import names
from extender.api.events import Removed, Upserted
from extender.api.objects import OwnerReference, Pod
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, node, pod


def plain(kind: str, **notes: str) -> Pod:
    made = pod("plain").bound("n1").build()
    owner = OwnerReference(api_version="v1", kind=kind, name="o", uid="u-o", controller=True)
    meta = replace(made.metadata, owner_references=[owner], annotations=notes)
    return replace(made, metadata=meta)


def stays(state: ClusterState) -> bool:
    state.validate_state()
    nodes = state.snapshot(1_000).nodes
    return bool(nodes.stays[nodes.cards.ix["n1"]])


@pytest.mark.parametrize(
    ("given", "is_lasting"),
    [
        (plain("ReplicaSet"), True),
        (plain("DaemonSet"), False),
        (plain("Node"), False),
        (plain("ReplicaSet", **{names.ANNOTATION_MIRROR: "x"}), False),
        (pod("with-gpus").needs(1000).bound("n1").build(), False),
    ],
    ids=["ReplicaSet", "DaemonSet", "Node", "mirror", "GPUs"],
)
def test_only_pods_without_gpus_that_are_no_part_of_the_node_count(
    given: Pod, is_lasting: bool
) -> None:
    state = ClusterState()
    for obj in (node("n1").build(), gpu_node("n1").cards(2).build(), given):
        state.apply(Upserted(obj))
    assert stays(state) is is_lasting
    meta = given.metadata
    state.apply(Removed(Pod, meta.uid, meta.namespace, meta.name))
    assert not stays(state)


@pytest.mark.parametrize("annotation", names.LASTING_NODE_KEYS)
def test_so_does_an_annotation_of_the_node(annotation: str) -> None:
    state, made = ClusterState(), node("n1").build()
    state.apply(Upserted(gpu_node("n1").cards(2).build()))
    for value, expected in (("false", False), ("true", True)):
        meta = replace(made.metadata, annotations={annotation: value})
        state.apply(Upserted(replace(made, metadata=meta)))
        assert stays(state) is expected
