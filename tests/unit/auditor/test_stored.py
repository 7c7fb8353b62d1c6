"""Decoding of stored objects: a pod in protobuf's wire format."""

import json

import pytest

from tests.support.auditor.stored import MAGIC, as_json


def tagged(number: int, content: bytes) -> bytes:
    """A length-delimited field of protobuf's wire format."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def stored(content: bytes) -> bytes:
    """The object in the envelope that etcd holds."""
    type_meta = tagged(1, tagged(1, b"v1") + tagged(2, b"Pod"))
    return MAGIC + type_meta + tagged(2, content)


LABEL = tagged(11, tagged(1, b"app") + tagged(2, b"web"))
LEAVING = tagged(9, b"\x08\x05")
META = tagged(1, tagged(1, b"a") + tagged(3, b"team") + LEAVING + LABEL)
LIMIT = tagged(1, tagged(1, b"nvidia.com/gpu") + tagged(2, tagged(1, b"2")))
CONTAINER = tagged(2, tagged(1, b"main") + tagged(2, b"image") + tagged(8, LIMIT))
SPEC = tagged(2, CONTAINER + tagged(10, b"node-1"))


def test_a_stored_pod_is_read_as_clients_see_it() -> None:
    assert json.loads(as_json("Pod", stored(META + SPEC))) == {
        "metadata": {
            "name": "a",
            "namespace": "team",
            "deletionTimestamp": 5,
            "labels": {"app": "web"},
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
            "nodeName": "node-1",
        },
    }


def test_custom_resources_are_json_already() -> None:
    assert as_json("GpuNode", b'{"a": 1}\n') == b'{"a": 1}\n'


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("Secret", stored(META), "not declared"),
        ("Pod", stored(b"\x0a\x7f"), "cannot be read"),
        ("Pod", MAGIC + b"\x12\x7f", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_an_error(kind: str, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_json(kind, content)
