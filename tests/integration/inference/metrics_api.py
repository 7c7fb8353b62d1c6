"""external.metrics.k8s.io as an aggregated API, answered from queries of Prometheus as KEDA does;
and a metric of load for Prometheus to scrape."""

import json
import math
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.controlplane.aggregated import EXTERNAL_METRICS, AggregatedApi
from tests.support.controlplane.cluster import SYSTEM_NAMESPACE, ControlPlane
from tests.support.controlplane.ports import LOOPBACK, free_port

_ROOT = f"/apis/{EXTERNAL_METRICS}"
_SERVICE = "external-metrics"
Answer = Callable[[str], bytes | None]


class Load:
    """Requests that the service has in progress: the model server's metric for Prometheus, and the
    count of the gateway in front of it."""

    def __init__(self) -> None:
        self.n_requests = 0
        #: How often the gateway was asked.
        self.n_asked = 0

    def page(self, path: str) -> bytes | None:
        """What the path has."""
        if path == "/load":
            self.n_asked += 1
            return json.dumps({"requests": self.n_requests}).encode()
        if path != "/metrics":
            return None
        running = f'vllm:num_requests_running{{namespace="team-a"}} {self.n_requests}'
        return f'{running}\nvllm:num_requests_waiting{{namespace="team-a"}} 0\n'.encode()


@contextmanager
def served(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server on loopback that answers GET with `answer` of its path; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer(self.path.partition("?")[0])
            self.send_response(404 if body is None else 200)
            kind = "application/json" if tls else "text/plain"
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body or b"{}")

        def log_message(self, *_: object) -> None:
            pass

    port = free_port()
    with ThreadingHTTPServer((LOOPBACK, port), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def external_metrics(
    plane: ControlPlane, folder: Path, metrics: Mapping[str, Callable[[], float | None]]
) -> Iterator[None]:
    """The API with these metrics, each worked out when it is asked for; None is an empty list."""
    pair = plane.authority.serving([f"{_SERVICE}.{SYSTEM_NAMESPACE}.svc"], [LOOPBACK])
    certificate, key = folder / "metrics.crt", folder / "metrics.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    def answer(path: str) -> bytes | None:
        if path == _ROOT:
            return json.dumps(_resources(metrics)).encode()
        name = path.rpartition("/")[2]
        return json.dumps(_values(name, metrics[name]())).encode() if name in metrics else None

    with served(answer, tls) as port:
        api = AggregatedApi(plane, EXTERNAL_METRICS, SYSTEM_NAMESPACE, _SERVICE)
        api.add(port)
        try:
            yield
        finally:
            api.remove()


def _resources(metrics: Mapping[str, object]) -> dict[str, Any]:
    listed = [
        {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList",
         "verbs": ["get"]}
        for name in metrics
    ]  # fmt: skip
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": EXTERNAL_METRICS,
        "resources": listed,
    }


def _values(name: str, value: float | None) -> dict[str, Any]:
    item = {
        "metricName": name,
        "metricLabels": {},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{math.ceil((value or 0) * 1000)}m",
    }
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": EXTERNAL_METRICS,
        "metadata": {},
        "items": [] if value is None else [item],
    }
