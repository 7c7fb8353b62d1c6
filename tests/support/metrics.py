"""Values of our metrics, as they are scraped."""

from prometheus_client import Counter, Gauge


def value_of(metric: Counter | Gauge) -> float:
    """The value of a metric without labels, or of one with its labels set."""
    family = next(iter(metric.collect()))
    return family.samples[0].value
