"""The history of workloads from Ballast's events, pods and GpuPodGroups, ordered by time."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from extender.api import names
from extender.api.ledger import read_cards
from extender.api.reasons import STOPS
from extender.api.units import MILLI_PER_GPU, format_gpus
from extender.cli.ask import Answer, key_of, listed, listed_or_none, path_of
from extender.cli.terminal.show import Column, Listing
from extender.kube.client import Client

_EVENTS: Final = "/apis/events.k8s.io/v1"
#: Reporting controllers of the events that are shown.
_OURS: Final = (names.CONTROLLER_NAME, names.SCHEDULER_NAME, "ballast")


async def read(client: Client, namespace: str, name: str, selector: str) -> Answer:
    """The history of the objects `name` and `name-*`; of all objects if `name` is empty.

    Raises a KubeError if events cannot be listed.
    """
    events = await listed(client, path_of("events", namespace, _EVENTS))
    pods = await listed_or_none(client, path_of("pods", namespace), selector=selector) or []
    groups = await listed_or_none(client, path_of("gpupodgroups", namespace, names.API_PATH)) or []
    items = [*from_events(events), *from_pods(pods), *from_groups(groups)]
    if selector:
        chosen = {_name(pod) for pod in pods} | {key_of(pod) for pod in pods}
        items = [each for each in items if each["object"].partition(":")[2] in chosen]
    if name:
        items = [each for each in items if is_about(each["object"], name)]
    items.sort(key=lambda each: (each["time"], each["object"], each["what"]))
    return {"kind": "HistoryList", "items": items}


def is_about(named: str, name: str) -> bool:
    """Whether the object `KIND:NAMESPACE/NAME` is `name` or `name-*`."""
    last = named.rpartition("/")[2]
    return last == name or last.startswith(f"{name}-")


def from_events(events: list[Answer]) -> Iterator[Answer]:
    """What events of Ballast and of the programs around it say."""
    for each in events:
        by = each.get("reportingController") or each.get("deprecatedSource", {}).get("component")
        if by not in _OURS and not str(by).startswith("ballast"):
            continue
        about = each["regarding"]
        series = each.get("series") or {}
        when = series.get("lastObservedTime") or each.get("eventTime") or each.get(
            "deprecatedLastTimestamp"
        ) or each["metadata"]["creationTimestamp"]  # fmt: skip
        yield _item(when, about["kind"], about, each["reason"], each.get("note", ""))


def from_pods(pods: list[Answer]) -> Iterator[Answer]:
    """When pods that Ballast manages were created and started."""
    for pod in pods:
        meta, status = pod["metadata"], pod["status"]
        if not _is_ours(pod):
            continue
        yield _item(meta["creationTimestamp"], "Pod", meta, "Created", "")
        if status.get("startTime"):
            where = f"on {pod['spec'].get('nodeName', '')}{_cards_of(meta)}"
            yield _item(status["startTime"], "Pod", meta, "Started", where)


def _cards_of(meta: Answer) -> str:
    """The indices of a pod's cards, with the share of a card that it does not hold whole."""
    text = (meta.get("annotations") or {}).get(names.ANNOTATION_CARDS, "")
    shown = [
        f"{card.index}" + (f" ({format_gpus(card.milli)})" if card.milli < MILLI_PER_GPU else "")
        for card in read_cards(text)
    ]
    noun = "card" if len(shown) == 1 else "cards"
    return f", {noun} {', '.join(shown)}" if shown else ""


def _is_ours(pod: Answer) -> bool:
    """Whether Ballast manages the pod: it has a label, annotation or gate of Ballast."""
    meta = pod["metadata"]
    keys = {*(meta.get("labels") or {}), *(meta.get("annotations") or {})}
    gates = (each["name"] for each in pod["spec"].get("schedulingGates", ()))
    return any(key.startswith(f"{names.GROUP}/") for key in (*keys, *gates))


def from_groups(groups: list[Answer]) -> Iterator[Answer]:
    """What the conditions of GpuPodGroups say."""
    for group in groups:
        for each in group.get("status", {}).get("conditions", ()):
            what = each["type"] if each["status"] == "True" else f"Not{each['type']}"
            message = (
                f"{each['reason']}: {each['message']}" if each.get("message") else each["reason"]
            )
            yield _item(each["lastTransitionTime"], "GpuPodGroup", group["metadata"], what, message)


def _item(time: str, kind: str, about: Answer, what: str, note: str) -> Answer:
    """One entry. Only events on pods count as evictions: the owner's event sums them up."""
    named = f"{about.get('namespace', '')}/{about['name']}"
    return {
        "time": f"{time.partition('.')[0].removesuffix('Z')}Z",
        "object": f"{kind.lower()}:{named}",
        "what": what,
        "message": note.removeprefix(f"{what}: "),
        "isEviction": what in STOPS and kind == "Pod",
    }


def _name(pod: Answer) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _shown(item: Answer) -> str:
    kind, _, named = item["object"].partition(":")
    return f"{kind}/{named.partition('/')[2]}"


def _space(item: Answer) -> Any:
    return item["object"].partition(":")[2].partition("/")[0]


def _columns(*, is_all: bool) -> Sequence[Column]:
    """The columns; the namespace is a wide one unless objects of all namespaces are listed."""
    return (
        Column("TIME", "time"),
        Column("NAMESPACE", _space, is_wide=not is_all),
        Column("OBJECT", _shown),
        Column("WHAT", "what", style=lambda item: "red" if item["isEviction"] else ""),
        Column("MESSAGE", "message", folds=True),
    )


def listing_of(namespace: str, name: str, *, is_evictions: bool) -> Listing:
    """How a history is shown; without entries, a message that names what was looked for."""
    what = "evictions" if is_evictions else "events or pods"
    of_name = f' of "{name}"' if name else ""
    where = f'namespace "{namespace}"' if namespace else "any namespace"
    return Listing(
        _columns(is_all=not namespace),
        lambda item: f"{item['time']} {item['object']} {item['what']}",
        f"No {what}{of_name} found in {where}; the API server keeps events for an hour.",
    )
