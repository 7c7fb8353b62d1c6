"""`ballast gpu top`: who has the cards of a node, and how much of what is theirs."""

import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

_MIB = 1 << 20
_PREFIX = "ballast_gpu_"

Key = tuple[str, str, str]


@dataclass(slots=True, frozen=True)
class Line:
    """One pod on one card; shares are parts of the card's time between two looks."""

    card: str
    pod: str
    used_mib: int
    cap_mib: int
    held: float
    entitled: float
    longest_wait_ms: float


def read(url: str) -> Mapping[Key, Mapping[str, float]]:
    """The agent's figures by (card, namespace, pod); raises OSError."""
    if not url.startswith("http://"):
        raise OSError(f"{url} is no http:// address")
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
        return figures(answer.read().decode())


def figures(text: str) -> Mapping[Key, Mapping[str, float]]:
    """The same from the text of a metrics page."""
    found: dict[Key, dict[str, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_PREFIX) and not sample.name.endswith("_created"):
                labels = sample.labels
                key = (labels["card"], labels["namespace"], labels["pod"])
                found[key][sample.name.removeprefix(_PREFIX)] = sample.value
    return found


def lines(
    before: Mapping[Key, Mapping[str, float]],
    after: Mapping[Key, Mapping[str, float]],
    took_s: float,
) -> list[Line]:
    """What each pod had between two looks, sorted by card and pod."""
    found = []
    for key, now in sorted(after.items()):
        held_s = now.get("held_seconds_total", 0.0)
        held_s -= before.get(key, {}).get("held_seconds_total", held_s)
        found.append(
            Line(
                key[0],
                f"{key[1]}/{key[2]}",
                int(now.get("memory_used_bytes", 0)) // _MIB,
                int(now.get("memory_cap_bytes", 0)) // _MIB,
                held_s / took_s,
                now.get("share_entitled_ratio", 0.0),
                now.get("gate_wait_longest_seconds", 0.0) * 1000,
            )
        )
    return found


def table(found: list[Line]) -> str:
    """The lines as text, columns as wide as they need to be."""
    rows = [("CARD", "POD", "MEMORY", "CAP", "HELD", "ENTITLED", "LONGEST WAIT")]
    rows += [
        (
            each.card,
            each.pod,
            f"{each.used_mib} MiB",
            f"{each.cap_mib} MiB",
            f"{each.held:.1%}",
            f"{each.entitled:.1%}",
            f"{each.longest_wait_ms:.0f} ms",
        )
        for each in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def look(url: str, every_s: float) -> str:
    """The table of the next `every_s` seconds."""
    before, began = read(url), time.monotonic()
    time.sleep(every_s)
    after = read(url)
    return table(lines(before, after, time.monotonic() - began))
