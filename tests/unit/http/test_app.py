"""The HTTP surface: requests that are refused before any decision, and the answers."""

import gzip
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.api.names import ANNOTATION_PLAN
from extender.http.bodies import MAX_BODY_BYTES
from extender.http.serve import ServeOptions
from extender.http.server import Address, ListenError
from tests.unit.http.rig import Running, running, unreachable_kubeconfig

VERBS = ("filter", "prioritize", "preempt", "bind")
FILTER = {"Pod": {"metadata": {"name": "a", "uid": "u"}}, "NodeNames": ["n1"]}
BIND = {"PodName": "a", "PodNamespace": "team-a", "PodUID": "u", "Node": "n1"}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_body_that_is_not_the_verbs_is_a_400_that_says_what_is(
    extender: Running, verb: str
) -> None:
    for body in (b"", b"{", b"[]", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000):
        status, answer = await extender.post(verb, body)
        assert status == 400
        assert "the body is not Extender" in answer["Error"]


@pytest.mark.parametrize("verb", VERBS)
async def test_a_body_over_8_mib_is_a_413(extender: Running, verb: str) -> None:
    status, answer = await extender.post(verb, b" " * (MAX_BODY_BYTES + 1))
    assert (status, str(MAX_BODY_BYTES) in answer["Error"]) == (413, True)


async def test_a_body_of_8_mib_is_read(extender: Running) -> None:
    status, _ = await extender.post("filter", b" " * MAX_BODY_BYTES)
    assert status == 400


@pytest.mark.parametrize("verb", VERBS)
async def test_a_compressed_body_is_a_415(extender: Running, verb: str) -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    status, answer = await extender.post(verb, bomb, Content_Encoding="gzip")
    assert (status, "compressed" in answer["Error"]) == (415, True)


async def test_a_body_that_is_not_json_by_its_header_is_a_415(extender: Running) -> None:
    status, _ = await extender.post("filter", FILTER, Content_Type="text/plain")
    assert status == 415


async def test_an_unknown_path_is_a_404_and_a_wrong_method_a_405(extender: Running) -> None:
    status, answer = await extender.post("nothing", FILTER)
    assert (status, "/filter" in answer["Error"]) == (404, True)
    async with extender.session.get(f"{extender.url}/filter") as got:
        assert (got.status, got.headers["Allow"]) == (405, "POST")
    async with extender.session.post(f"{extender.url}/healthz") as got:
        assert got.status == 405


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PodName", "../../nodes/n1"),
        ("PodName", "a%2fb"),
        ("PodName", "a\nb"),
        ("PodName", "A"),
        ("PodName", ""),
        ("PodName", "x" * 254),
        ("PodNamespace", "team.a"),
        ("PodNamespace", "x" * 64),
        ("PodNamespace", ".."),
        ("PodUID", ""),
        ("PodUID", "a b"),
        ("PodUID", "x" * 129),
        ("Node", "n1/status"),
        ("Node", "n1\x00"),
        ("Node", "n1."),
    ],
)
async def test_bind_takes_nothing_but_names(extender: Running, key: str, value: str) -> None:
    status, answer = await extender.post("bind", BIND | {key: value})
    assert (status, answer["Error"].startswith(f"{key}: ")) == (400, True)


async def test_verbs_wait_until_everything_was_listed_once(tmp_path: Path) -> None:
    async with running(unreachable_kubeconfig(tmp_path)) as fresh:
        async with fresh.session.get(f"{fresh.url}/healthz") as got:
            assert got.status == 200
        async with fresh.session.get(f"{fresh.url}/readyz") as got:
            assert got.status == 503
        assert (await fresh.post("filter", FILTER))[0] == 503
        fresh.be_synced()
        async with fresh.session.get(f"{fresh.url}/readyz") as got:
            assert got.status == 200
        assert (await fresh.post("filter", FILTER))[0] == 200


async def test_a_planned_pod_is_no_decision_without_the_api_server(extender: Running) -> None:
    planned = {"metadata": {"name": "a", "uid": "u", "annotations": {ANNOTATION_PLAN: "1 n1"}}}
    status, answer = await extender.post("filter", {"Pod": planned, "NodeNames": ["n1"]})
    assert (status, answer["Error"]) == (200, "the API server did not answer; try again")


async def test_bind_without_the_api_server_is_an_error_and_in_time(extender: Running) -> None:
    status, answer = await extender.post("bind", BIND)
    assert (status, answer["Error"].split(":")[0]) in ((200, "ApiAway"), (200, "TooLate"))


async def test_metrics_name_verbs_and_results_and_nothing_a_tenant_wrote(
    extender: Running,
) -> None:
    await extender.post("filter", FILTER)
    await extender.post("bind", b"{}")
    async with extender.session.get(f"{extender.url}/metrics") as got:
        families = {each.name: each for each in text_string_to_metric_families(await got.text())}
    calls = families["ballast_extender_requests"].samples
    assert {("filter", "ok"), ("bind", "bad_request")} <= {
        (each.labels["verb"], each.labels["result"]) for each in calls if each.labels
    }
    ours = [family for name, family in families.items() if name.startswith("ballast_extender")]
    keys = {key for family in ours for sample in family.samples for key in sample.labels}
    assert keys <= {"verb", "result", "le", "way", "reason", "kind"}


async def test_health_and_metrics_may_have_a_port_of_their_own(tmp_path: Path) -> None:
    options = ServeOptions(listen="127.0.0.1:0", metrics_listen="127.0.0.1:0")
    async with running(unreachable_kubeconfig(tmp_path), options) as made:
        url = f"http://127.0.0.1:{made.extender.ports[1]}"
        async with made.session.get(f"{url}/metrics") as got:
            assert got.status == 200
        async with made.session.post(f"{url}/filter", json=FILTER) as got:
            assert got.status == 404


@pytest.mark.parametrize("listen", ["0.0.0.0:0", ":0", "[::]:0", "10.0.0.1:80", "example.org:80"])
async def test_plain_http_is_for_loopback_only(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ListenError, match="can be reached from other hosts"):
        async with running(unreachable_kubeconfig(tmp_path), ServeOptions(listen=listen)):
            pass


@pytest.mark.parametrize("listen", ["", "8888", "127.0.0.1", "127.0.0.1:", "h:99999", "h:-1"])
async def test_an_address_that_is_none_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ListenError, match="is not an address"):
        async with running(unreachable_kubeconfig(tmp_path), ServeOptions(listen=listen)):
            pass


async def test_an_address_that_is_taken_is_named_as_it_was_given(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenError, match=f"cannot listen on {listen}: "):
            async with running(unreachable_kubeconfig(tmp_path), ServeOptions(listen=listen)):
                pass


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("127.0.0.1:8888", "localhost:80", "[::1]:8888"):
        assert str(Address.parse(text)) == text
