"""Metrics of `serve`. Label values are closed lists, never text that a tenant writes."""

from typing import Final, Literal

from prometheus_client import Counter, Gauge, Histogram

Verb = Literal["filter", "prioritize", "preempt", "bind"]
#: `ok`: an answer with content; `refused`: no node, victim or binding is possible; `failed`:
#: undecided (API server down, deadline); `bad_request`: not understood; `not_ready`: before the
#: caches were filled; `crashed`: a bug.
Result = Literal["ok", "refused", "failed", "bad_request", "not_ready", "crashed"]

VERBS: Final[tuple[Verb, ...]] = ("filter", "prioritize", "preempt", "bind")

REQUESTS: Final = Counter(
    "ballast_extender_requests_total", "Extender calls by verb and result.", ["verb", "result"]
)
DURATION: Final = Histogram(
    "ballast_extender_request_duration_seconds",
    "Time from the complete body to the answer.",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
BINDS: Final = Counter(
    "ballast_extender_binds_total",
    "Bind decisions by the way the pod came and the reason it was refused, or Scheduled.",
    ["way", "reason"],
)
LIVE_READS: Final = Counter(
    "ballast_extender_live_reads_total",
    "Objects read from the API server because the cache or memory did not have them.",
    ["kind"],
)
NODES: Final = Gauge("ballast_extender_gpu_nodes", "GpuNodes in the cache.")
REMEMBERED: Final = Gauge(
    "ballast_extender_remembered_pods", "Pods remembered between filter and bind."
)
CERTIFICATES: Final = Counter(
    "ballast_extender_certificate_reloads_total", "Reloads of the serving certificate.", ["result"]
)
