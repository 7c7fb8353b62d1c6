"""`ballast gpu top`: two samples of an agent's metrics as tables."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from gpu_shim import top
from gpu_shim.cli import gpu

PAGE = """
# TYPE ballast_gpu_memory_used_bytes gauge
ballast_gpu_memory_used_bytes{{card="GPU-a",namespace="team",pod="p"}} 4.194304e+07
# TYPE ballast_gpu_memory_cap_bytes gauge
ballast_gpu_memory_cap_bytes{{card="GPU-a",namespace="team",pod="p"}} 6.7108864e+07
# TYPE ballast_gpu_gate_wait_p99_seconds gauge
ballast_gpu_gate_wait_p99_seconds{{card="GPU-a",namespace="team",pod="p"}} 0.25
# TYPE ballast_gpu_card_memory_bytes gauge
ballast_gpu_card_memory_bytes{{card="GPU-a",index="0"}} 1.34217728e+08
# TYPE ballast_gpu_card_healthy gauge
ballast_gpu_card_healthy{{card="GPU-a",index="0"}} 0.0
# TYPE ballast_gpu_card_info gauge
ballast_gpu_card_info{{card="GPU-a",index="0",model="H100"}} 1.0
# TYPE ballast_agent_info gauge
ballast_agent_info{{mode="strict",node="node-1"}} 1.0
# TYPE ballast_agent_rejected_rows gauge
ballast_agent_rejected_rows 2.0
# TYPE ballast_agent_evictions counter
ballast_agent_evictions_total 0.0
# TYPE ballast_gpu_share_entitled_ratio gauge
ballast_gpu_share_entitled_ratio{{card="GPU-a",namespace="team",pod="p"}} 0.25
# TYPE ballast_gpu_held_seconds counter
ballast_gpu_held_seconds_total{{card="GPU-a",namespace="team",pod="p"}} {held}
"""

UNTIMED = "\n".join(
    line for line in PAGE.format(held=0).splitlines() if "held" not in line and "share" not in line
)


class Agent(BaseHTTPRequestHandler):
    """Answers with pages one after the other, the last again and again."""

    pages: list[str]

    def do_GET(self) -> None:
        body = (self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]).encode()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def agent() -> Iterator[str]:
    """Where an agent answers."""
    Agent.pages = [PAGE.format(held=10.0), PAGE.format(held=10.05)]
    server = HTTPServer(("127.0.0.1", 0), Agent)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def run(url: str, *more: str) -> Result:
    return CliRunner().invoke(gpu, ["top", "--once", "--every=0.2", "--url", url, *more])


def shown(before: str, after: str, took_s: float = 2.0) -> top.View:
    return top.view(top.figures(before), top.figures(after), took_s)


def test_shares_are_those_between_two_looks() -> None:
    (pod,) = shown(PAGE.format(held=10.0), PAGE.format(held=10.5)).pods
    assert (pod.card, pod.pod, pod.used_mib, pod.cap_mib) == (0, "team/p", 40, 64)
    assert (pod.held, pod.entitled, pod.wait_p99_ms) == (0.25, 0.25, 250)


def test_a_pod_that_was_not_there_before_has_held_nothing_yet() -> None:
    (pod,) = shown("", PAGE.format(held=9)).pods
    assert pod.held == 0


def test_after_an_agent_started_anew_nothing_negative_is_held() -> None:
    (pod,) = shown(PAGE.format(held=9), PAGE.format(held=1)).pods
    assert pod.held == 0


def test_where_time_is_not_sliced_there_are_no_shares() -> None:
    found = shown(UNTIMED, UNTIMED)
    assert (found.pods[0].held, found.pods[0].entitled, found.cards[0].held) == (None, None, None)
    assert "0.0%" not in top.text(found)


def test_cards_come_first_then_their_pods_and_what_is_wrong_stands_above(agent: str) -> None:
    title, note, _, head, card, _, below, pod = run(agent).output.splitlines()
    assert title == "node-1: 1 card, shared by 1 pod, strict shares"
    assert note.startswith("! 2 of the node's pods can't be served")
    assert head.split() == ["CARD", "MODEL", "UUID", "USED", "CAPS", "HELD", "STATE"]
    assert card.split()[:6] == ["0", "H100", "GPU-a", "40", "of", "128"]
    assert card.endswith("UNHEALTHY")
    assert below.split() == ["CARD", "POD", "USED", "OF", "CAP", "HELD", "ENTITLED", "WAIT", "P99"]
    assert pod.split()[:6] == ["0", "team/p", "40", "of", "64", "MiB"]
    assert pod.endswith("25.0%     250 ms")


def test_a_pod_above_its_cap_is_marked() -> None:
    over = PAGE.format(held=1).replace("4.194304e+07", "4.194304e+08")
    assert "400 of 64 MiB OVER" in top.text(shown(over, over))


def test_programs_get_the_same_as_json(agent: str) -> None:
    found = json.loads(run(agent, "-o", "json").output)
    assert found["node"] == "node-1"
    assert found["cards"][0]["model"] == "H100"
    assert found["pods"][0]["entitled"] == 0.25
    assert found["pods"][0]["held"] > 0


@pytest.mark.parametrize(
    ("path", "page", "why"),
    [
        ("metrics", "# HELP of another program\n", "has no figures of a Ballast agent"),
        ("metrics", "<html>{", "is not a page of metrics"),
        ("other", "", "Not Found"),
    ],
)
def test_answers_of_other_programs_are_distinguished_from_an_agents(
    agent: str, path: str, page: str, why: str
) -> None:
    Agent.pages = [page]
    done = run(agent.replace("metrics", path))
    assert done.exit_code == 1
    assert why in done.output


def test_where_no_agent_answers_it_says_so() -> None:
    done = run("http://127.0.0.1:1/metrics")
    assert done.exit_code == 1
    assert "no agent at http://127.0.0.1:1/metrics: " in done.output
    assert "refused" in done.output
