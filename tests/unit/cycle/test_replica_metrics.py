"""Metric of replicas that have room, for autoscalers."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from extender.cycle.replica_metrics import ReplicaMetrics
from extender.policy.decide import decide
from tests.unit.policy.test_floors import cluster, replica


def scraped(figures: ReplicaMetrics) -> list[str]:
    registry = CollectorRegistry()
    registry.register(figures)
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if not line.startswith("#"))


def test_replicas_are_counted_by_what_they_have() -> None:
    c = cluster(quota=2)
    replica(c, "r0", 1, on="n0")
    replica(c, "r1", 1, on="n0")
    replica(c, "r2", 1)
    replica(c, "ends", 1, on="n0", terminating=True)
    replica(c, "ocr", 1, "ocr")
    figures = ReplicaMetrics()
    figures.look(decide(c.snapshot()), c.snapshot())
    assert scraped(figures) == [
        'ballast_replicas{owner="ns/llm",state="kept"} 1.0',
        'ballast_replicas{owner="ns/llm",state="surge"} 1.0',
        'ballast_replicas{owner="ns/llm",state="waiting"} 1.0',
        'ballast_replicas{owner="ns/ocr",state="kept"} 0.0',
        'ballast_replicas{owner="ns/ocr",state="surge"} 0.0',
        'ballast_replicas{owner="ns/ocr",state="waiting"} 1.0',
    ]
    figures.clear()
    assert scraped(figures) == []
