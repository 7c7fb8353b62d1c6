"""`ballast gpu top`: the cards of a node, who has them, and how much of what is theirs."""

import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

_MIB = 1 << 20
_PREFIX = "ballast_gpu_"

#: A card by (uuid, index), or a pod on a card by (uuid, namespace, name).
Key = tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Page:
    """The agent's figures at one moment, by card, and by pod and card."""

    cards: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)
    pods: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Line:
    """One pod on one card; shares are parts of the card's time between two looks."""

    card: str
    pod: str
    used_mib: int
    cap_mib: int
    held: float
    entitled: float
    p99_wait_ms: float


@dataclass(slots=True, frozen=True)
class CardLine:
    """One card: how much of its memory pods may have, and have."""

    index: str
    card: str
    memory_mib: int
    is_healthy: bool


def read(url: str) -> Page:
    """What the agent says; raises OSError."""
    if not url.startswith("http://"):
        raise OSError(f"{url} is no http:// address")
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
        return figures(answer.read().decode())


def figures(text: str) -> Page:
    """The same from the text of a metrics page."""
    cards: dict[Key, dict[str, float]] = defaultdict(dict)
    pods: dict[Key, dict[str, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.startswith(_PREFIX) or sample.name.endswith("_created"):
                continue
            name, labels = sample.name.removeprefix(_PREFIX), sample.labels
            if "pod" in labels:
                pods[labels["card"], labels["namespace"], labels["pod"]][name] = sample.value
            else:
                cards[labels["card"], labels["index"]][name] = sample.value
    return Page(cards, pods)


def lines(before: Page, after: Page, took_s: float) -> list[Line]:
    """What each pod had between two looks, sorted by card and pod."""
    found = []
    for key, now in sorted(after.pods.items()):
        held_s = now.get("held_seconds_total", 0.0)
        held_s -= before.pods.get(key, {}).get("held_seconds_total", held_s)
        found.append(
            Line(
                key[0],
                f"{key[1]}/{key[2]}",
                int(now.get("memory_seen_bytes", now.get("memory_used_bytes", 0))) // _MIB,
                int(now.get("memory_cap_bytes", 0)) // _MIB,
                held_s / took_s,
                now.get("share_entitled_ratio", 0.0),
                now.get("gate_wait_p99_seconds", 0.0) * 1000,
            )
        )
    return found


def card_lines(page: Page) -> list[CardLine]:
    """The cards by their index."""
    return [
        CardLine(
            index,
            uuid,
            int(now.get("card_memory_bytes", 0)) // _MIB,
            now.get("card_healthy", 1.0) == 1.0,
        )
        for (uuid, index), now in sorted(page.cards.items(), key=lambda each: int(each[0][1]))
    ]


def table(found: Sequence[Line], cards: Sequence[CardLine] = ()) -> str:
    """Cards, then pods, as text."""
    of_card = {each.card: [line for line in found if line.card == each.card] for each in cards}
    upper = [
        (
            each.index,
            each.card,
            f"{each.memory_mib} MiB",
            f"{sum(line.cap_mib for line in of_card[each.card])} MiB",
            f"{sum(line.used_mib for line in of_card[each.card])} MiB",
            "yes" if each.is_healthy else "NO",
        )
        for each in cards
    ]
    lower = [
        (
            each.card,
            each.pod,
            f"{each.used_mib} MiB",
            f"{each.cap_mib} MiB",
            f"{each.held:.1%}",
            f"{each.entitled:.1%}",
            f"{each.p99_wait_ms:.0f} ms",
        )
        for each in found
    ]
    head = ("CARD", "POD", "MEMORY", "CAP", "HELD", "ENTITLED", "WAIT P99")
    parts = [_columns([head, *lower])]
    if upper:
        parts.insert(0, _columns([("INDEX", "CARD", "MEMORY", "CAPS", "USED", "HEALTHY"), *upper]))
    return "\n\n".join(parts)


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as text, columns as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def look(url: str, every_s: float) -> str:
    """The tables of the next `every_s` seconds."""
    before, began = read(url), time.monotonic()
    time.sleep(every_s)
    after = read(url)
    return table(lines(before, after, time.monotonic() - began), card_lines(after))
