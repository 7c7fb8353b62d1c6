import json
from typing import Any

import pytest

from extender.kube.errors import Undecodable
from extender.kube.resources import PODS, PROJECTS, RESOURCE_CLAIMS
from extender.kube.wire import decode_identity, decode_line, decode_object, decode_page


def pod(name: str, **more: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": f"u-{name}"}} | more


def listing(*items: object, **meta: str) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "7"} | meta, "items": items}).encode()


def test_a_page_holds_its_items_its_version_and_where_to_go_on() -> None:
    page = decode_page(PODS, listing(pod("a"), pod("b"), **{"continue": "token"}))
    assert [p.metadata.name for p in page.items] == ["a", "b"]
    assert (page.resource_version, page.continue_token) == ("7", "token")


def test_a_poison_object_hides_no_other_and_is_still_known_to_exist() -> None:
    poison = pod("b", spec={"priority": "high"})
    page = decode_page(PODS, listing(pod("a"), poison, pod("c")))
    assert [p.metadata.name for p in page.items] == ["a", "c"]
    assert [(s.namespace, s.name, s.uid) for s in page.skipped] == [("n", "b", "u-b")]


def test_null_items_are_an_empty_page() -> None:
    assert decode_page(PODS, b'{"metadata":{"resourceVersion":"7"},"items":null}').items == []


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"items":[]}', b'{"metadata":1}', b"\xff"])
def test_what_is_no_list_is_undecodable(text: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_page(PODS, text)


def test_a_bookmark_of_a_kind_with_required_fields_has_an_identity() -> None:
    line = decode_line(
        PROJECTS, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}'
    )
    assert decode_identity(PROJECTS, line.object).resource_version == "9"
    with pytest.raises(Undecodable):
        decode_object(PROJECTS, line.object)


def deep_claim(name: str, depth: int = 5000) -> str:
    """A claim with parameters as deep as the API server accepts in their 10 KiB; text in them has
    brackets too."""
    within = r'"[{\\\" ]",' + "[" * depth + "1" + "]" * depth
    return (
        f'{{"metadata":{{"name":"{name}","namespace":"n","uid":"u-{name}","resourceVersion":"5"}},'
        f'"spec":{{"devices":{{"config":[{{"opaque":{{"parameters":{{"a":[{within}]}}}}}}],'
        '"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu.nvidia.com","count":2}}]}}}'
    )


def test_parameters_that_are_nested_too_deeply_hide_no_claim() -> None:
    body = f'{{"metadata":{{"resourceVersion":"7"}},"items":[{deep_claim("a")},{deep_claim("b")}]}}'
    page = decode_page(RESOURCE_CLAIMS, body.encode())
    assert [claim.metadata.name for claim in page.items] == ["a", "b"]
    requests = [claim.spec.devices.requests for claim in page.items]
    assert [each[0].exactly.count for each in requests if each and each[0].exactly] == [2, 2]


def test_a_watch_delivers_a_claim_with_parameters_that_are_nested_too_deeply() -> None:
    line = decode_line(RESOURCE_CLAIMS, f'{{"type":"ADDED","object":{deep_claim("a")}}}'.encode())
    assert decode_object(RESOURCE_CLAIMS, line.object).metadata.name == "a"
    assert decode_object(RESOURCE_CLAIMS, deep_claim("a").encode()).metadata.name == "a"
    assert decode_identity(RESOURCE_CLAIMS, deep_claim("a").encode()).uid == "u-a"


def test_a_deep_body_that_is_broken_is_undecodable() -> None:
    with pytest.raises(Undecodable):
        decode_page(RESOURCE_CLAIMS, b'{"metadata":{},"items":' + b"[" * 5000)
