"""`ballast gpu top`: the cards of a node, the pods on them, and what each pod uses.

Read from the agent's metrics. Shares are parts of a card's time between two scrapes.
"""

import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException

import msgspec
from prometheus_client.parser import text_string_to_metric_families

_MIB = 1 << 20
_PREFIX = "ballast_"

#: (index, uuid) of a card, or (uuid, namespace, name) of a pod on a card.
Key = tuple[str, ...]


class TopError(Exception):
    """No agent could be read; the message says where, and why."""


@dataclass(slots=True)
class MetricsPage:
    """The agent's metrics at one moment, by name."""

    cards: dict[Key, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    pods: dict[Key, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    own: dict[str, float] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    node: str = ""
    mode: str = ""


class CardUsage(msgspec.Struct):
    """One card. `held` is None without time-slicing."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    used_mib: int
    caps_mib: int
    held: float | None
    is_healthy: bool


class PodUsage(msgspec.Struct):
    """One pod on one card; parts of time are None without time-slicing."""

    card: int
    pod: str
    used_mib: int
    cap_mib: int
    held: float | None
    entitled: float | None
    wait_p99_ms: float


class View(msgspec.Struct):
    """One output. `notes` are sentences about problems."""

    node: str
    mode: str
    cards: list[CardUsage]
    pods: list[PodUsage]
    notes: list[str]


def read(url: str) -> MetricsPage:
    """The agent's metrics; raises TopError."""
    if not url.startswith(("http://", "https://")):
        raise TopError(f"{url} is not an http:// address")
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
            page = figures(answer.read().decode())
    except (OSError, HTTPException) as error:
        raise TopError(f"no agent at {url}: {getattr(error, 'reason', '') or error}") from error
    except ValueError as error:
        raise TopError(f"{url} is not a page of metrics: {error}") from error
    if not page.node:
        raise TopError(f"{url} has no figures of a Ballast agent")
    return page


def figures(text: str) -> MetricsPage:
    """The metrics in the text of a page; raises ValueError."""
    page = MetricsPage()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name, labels = sample.name.removeprefix(_PREFIX), sample.labels
            if name == sample.name:
                continue
            if name == "agent_info":
                page.node, page.mode = labels["node"], labels["mode"]
            elif name == "gpu_card_info":
                page.models[labels["card"]] = labels["model"]
            elif "pod" in labels:
                page.pods[labels["card"], labels["namespace"], labels["pod"]][name] = sample.value
            elif "card" in labels:
                page.cards[labels["index"], labels["card"]][name] = sample.value
            else:
                page.own[name] = page.own.get(name, 0.0) + sample.value
    return page


def view(before: MetricsPage, after: MetricsPage, took_s: float) -> View:
    """The state in `after`, and the time held between `before` and `after`."""
    index_of = {uuid: int(index) for index, uuid in after.cards}
    pods = sorted(
        (
            PodUsage(
                card=index_of.get(key[0], -1),
                pod="/".join(key[1:]),
                used_mib=_mib(now, "gpu_memory_seen_bytes", "gpu_memory_used_bytes"),
                cap_mib=_mib(now, "gpu_memory_cap_bytes"),
                held=_held(before.pods.get(key, now), now, took_s),
                entitled=now.get("gpu_share_entitled_ratio"),
                wait_p99_ms=now.get("gpu_gate_wait_p99_seconds", 0.0) * 1000,
            )
            for key, now in after.pods.items()
        ),
        key=lambda each: (each.card, each.pod),
    )
    cards = [
        _card(index_of[uuid], uuid, after, [each for each in pods if each.card == index_of[uuid]])
        for _, uuid in sorted(after.cards, key=lambda key: int(key[0]))
    ]
    return View(after.node, after.mode, cards, pods, _notes(after))


def _card(index: int, uuid: str, page: MetricsPage, pods: Sequence[PodUsage]) -> CardUsage:
    now = page.cards[str(index), uuid]
    held = [each.held for each in pods if each.held is not None]
    return CardUsage(
        index=index,
        uuid=uuid,
        model=page.models.get(uuid, ""),
        memory_mib=_mib(now, "gpu_card_memory_bytes"),
        used_mib=sum(each.used_mib for each in pods),
        caps_mib=sum(each.cap_mib for each in pods),
        held=sum(held, 0.0) if held or not pods else None,
        is_healthy=now.get("gpu_card_healthy") == 1.0,
    )


def _notes(page: MetricsPage) -> list[str]:
    own = page.own
    notes = []
    if n_rows := int(own.get("agent_rejected_rows", 0)):
        notes.append(f"{n_rows} of the node's pods can't be served: see the agent's log")
    if own.get("agent_runtime_connected") == 0:
        notes.append("the container runtime does not ask the agent: pods start unprotected")
    if n_pods := int(own.get("agent_pods_beyond_bounds", 0)):
        notes.append(f"{n_pods} pods are beyond their bounds: see the GpuNode's conditions")
    return notes


def _mib(now: dict[str, float], *names: str) -> int:
    """The first of these metrics that is present, in MiB."""
    return int(next((now[name] for name in names if name in now), 0.0)) // _MIB


def _held(before: dict[str, float], now: dict[str, float], took_s: float) -> float | None:
    """The part of the time held; a restarted agent counts from 0."""
    name = "gpu_held_seconds_total"
    return max(0.0, now[name] - before.get(name, now[name])) / took_s if name in now else None


def text(shown: View) -> str:
    """The view as tables."""
    modes = {"off": "time is not sliced", "strict": "strict shares", "fair": "fair shares"}
    n_pods = len({each.pod for each in shown.pods})
    title = f"{shown.node}: {_count(len(shown.cards), 'card')}, shared by {_count(n_pods, 'pod')}"
    cards = [
        (
            str(each.index),
            each.model or "-",
            each.uuid,
            _of(each.used_mib, each.memory_mib),
            f"{each.caps_mib} MiB",
            _part(each.held),
            "healthy" if each.is_healthy else "UNHEALTHY",
        )
        for each in shown.cards
    ]
    pods = [
        (
            str(each.card),
            each.pod,
            _of(each.used_mib, each.cap_mib) + (" OVER" if each.used_mib > each.cap_mib else ""),
            _part(each.held),
            _part(each.entitled),
            f"{each.wait_p99_ms:.0f} ms",
        )
        for each in shown.pods
    ]
    parts = [f"{title}, {modes.get(shown.mode, shown.mode)}"]
    parts += [f"! {note}" for note in shown.notes]
    parts += ["", _columns(("CARD", "MODEL", "UUID", "USED", "CAPS", "HELD", "STATE"), cards)]
    if pods:
        head = ("CARD", "POD", "USED OF CAP", "HELD", "ENTITLED", "WAIT P99")
        parts += ["", _columns(head, pods)]
    return "\n".join(parts)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _of(used_mib: int, all_mib: int) -> str:
    return f"{used_mib} of {all_mib} MiB"


def _part(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def _columns(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Rows as text, with aligned columns."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


@dataclass(slots=True)
class Watcher:
    """Scrapes repeatedly. The first view needs two scrapes to compare."""

    url: str
    _last: MetricsPage | None = None
    _last_s: float = 0.0

    def look(self, every_s: float) -> View:
        """The view of the time since the last scrape, at least `every_s`; raises TopError."""
        if self._last is None:
            self._last, self._last_s = read(self.url), time.monotonic()
        time.sleep(max(0.0, self._last_s + every_s - time.monotonic()))
        page, now_s = read(self.url), time.monotonic()
        found = view(self._last, page, now_s - self._last_s)
        self._last, self._last_s = page, now_s
        return found
