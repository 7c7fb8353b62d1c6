"""Held GPU capacity, from rows of GpuNodes, the status of queues and the cards annotation of
pods."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from extender.api import names
from extender.api.ledger import read_cards
from extender.api.units import MILLI_PER_GPU, format_age, format_gpus
from extender.cli.ask import Answer, key_of, listed, listed_or_none, path_of
from extender.cli.holdings.agents import Use, uses
from extender.cli.terminal.show import Column, Listing
from extender.kube.client import Client


async def read(client: Client, what: str, namespace: str, selector: str) -> Answer:
    """The list for one argument of `ballast top` (`extender.cli.holdings.top.WHAT`).

    Raises a KubeError.
    """
    if what == "projects":
        items = [each async for each in _projects(client)]
    elif what == "pods":
        items = await read_pods(client, namespace, selector)
    else:
        items = await _nodes(client, selector)
        if what == "gpus":
            items = [card for node in items for card in node["gpus"]]
    kind = {"projects": "Project", "nodes": "Node", "gpus": "Gpu", "pods": "Pod"}[what]
    return {"kind": f"{kind}UseList", "items": items}


async def _projects(client: Client) -> Any:
    for kind, plural in (("department", "gpudepartments"), ("project", "gpuprojects")):
        for each in await listed(client, f"{names.API_PATH}/{plural}"):
            gpu = each.get("status", {}).get("gpu", {})
            yield {
                "kind": kind,
                "name": each["metadata"]["name"],
                "department": each["spec"].get("department", ""),
                "state": each.get("status", {}).get("state", ""),
                **gpu,
            }


async def read_pods(client: Client, namespace: str, selector: str) -> list[Answer]:
    """The pods that have cards, as items of a list."""
    found = []
    pods = await listed(client, path_of("pods", namespace), selector=selector)
    projects = await listed_or_none(client, f"{names.API_PATH}/gpuprojects")
    for pod in pods:
        meta, notes = pod["metadata"], pod["metadata"].get("annotations") or {}
        cards = read_cards(notes.get(names.ANNOTATION_CARDS, ""))
        if pod["status"].get("phase") in ("Succeeded", "Failed") or not cards:
            continue
        found.append(
            {
                "namespace": meta["namespace"],
                "name": meta["name"],
                "workload": key_of(pod).partition("/")[2],
                "project": project_of(meta, projects),
                "user": (meta.get("labels") or {}).get(names.LABEL_USER, ""),
                "node": pod["spec"].get("nodeName", ""),
                "cards": [card.index for card in cards],
                "held": format_gpus(sum(card.milli for card in cards)),
                "heldMiB": sum(card.memory_mib for card in cards),
                "since": pod["status"].get("startTime", ""),
            }
        )
    seen = await uses(client, {each["node"] for each in found})
    for each in found:
        _add_use(each, seen.pods.get((each["namespace"], each["name"])))
    return sorted(found, key=lambda each: (each["namespace"], each["name"]))


def project_of(meta: Answer, projects: list[Answer] | None) -> str:
    """The oldest project that lists the pod's namespace; the project of the pod's label if the user
    may not list projects."""
    if projects is None:
        return str((meta.get("labels") or {}).get(names.LABEL_PROJECT, ""))
    oldest = sorted(projects, key=lambda each: each["metadata"].get("creationTimestamp", ""))
    listing = (each for each in oldest if meta["namespace"] in each["spec"].get("namespaces", ()))
    found = next(listing, None)
    return str(found["metadata"]["name"]) if found else ""


async def _nodes(client: Client, selector: str) -> list[Answer]:
    kept: set[str] | None = None
    if selector:
        nodes = await listed(client, "/api/v1/nodes", selector=selector)
        kept = {each["metadata"]["name"] for each in nodes}
    objects = [
        each
        for each in await listed(client, f"{names.API_PATH}/gpunodes")
        if kept is None or each["metadata"]["name"] in kept
    ]
    seen = await uses(client, {each["metadata"]["name"] for each in objects})
    return [node_with_use(each, seen.cards) for each in objects]


def node_with_use(gpu_node: Answer, seen: Mapping[tuple[str, int], Use]) -> Answer:
    """A node of the ledger as an item of a list: what is held of each card, and used if known."""
    name, status = gpu_node["metadata"]["name"], gpu_node.get("status", {})
    held: Counter[int] = Counter()
    pods: defaultdict[int, list[str]] = defaultdict(list)
    rows = [row for row in gpu_node.get("spec", {}).get("rows", ()) if row["state"] != "nominated"]
    for row in rows:
        for card in row["cards"]:
            held[card["index"]] += card["milli"]
            pods[card["index"]].append(f"{row['namespace']}/{row['name']}")
    foreign = sum(each["gpus"] for each in status.get("foreign", ()))
    for hold in status.get("foreign", ()):
        for card in hold.get("cards", ()):
            held[card["index"]] += card["milli"]
            pods[card["index"]].append(f"{hold['namespace']}/{hold['name']}")
    gpus = [
        _card(name, device, held[device["index"]], pods[device["index"]], seen)
        for device in status.get("devices", ())
    ]
    healthy = [each for each in gpus if each["health"] == "Healthy"]
    n_whole = sum(not each["pods"] for each in healthy)
    unheld = sum(MILLI_PER_GPU - held[each["index"]] for each in healthy)
    free = unheld - foreign * MILLI_PER_GPU
    return {
        "name": name,
        "nodePool": (gpu_node["metadata"].get("labels") or {}).get(names.LABEL_NODE_POOL, ""),
        "model": next((each["model"] for each in gpus if each["model"]), ""),
        "cards": len(gpus),
        "healthyCards": len(healthy),
        "held": format_gpus(sum(held.values())),
        "foreign": foreign,
        "free": format_gpus(max(0, free)),
        "freeWhole": max(0, n_whole - foreign),
        "pods": len(rows),
        "gpus": gpus,
    } | _sum_of(gpus)


def _card(
    node: str, device: Answer, milli: int, pods: list[str], seen: Mapping[tuple[str, int], Use]
) -> Answer:
    card = {
        "node": node,
        "index": device["index"],
        "uuid": device.get("uuid", ""),
        "model": device.get("model", ""),
        "memoryMiB": device["memoryMiB"],
        "health": device.get("health", "Healthy"),
        "held": format_gpus(milli),
        "pods": pods,
    }
    _add_use(card, seen.get((node, device["index"])))
    return card


def _add_use(of: Answer, use: Use | None) -> None:
    if use is not None:
        of["usedMiB"] = use.used_mib
        if use.busy is not None:
            of["busy"] = f"{use.busy:.0%}"


def _sum_of(gpus: list[Answer]) -> Answer:
    used = [each["usedMiB"] for each in gpus if "usedMiB" in each]
    return {"usedMiB": sum(used)} if used else {}


# -- columns ---------------------------------------------------------------------------------


def _limit(item: Answer) -> object:
    limit = item.get("limit", "unlimited")
    return "-" if limit == "unlimited" else limit


def _health_style(item: Answer) -> str:
    return "red" if item["healthyCards"] < item["cards"] else ""


_OF_USE: Final = (Column("USED MIB", "usedMiB"), Column("BUSY", "busy"))

LISTINGS: Final[Mapping[str, Listing]] = {
    "projects": Listing(
        (
            Column("QUEUE", "name"),
            Column("KIND", "kind"),
            Column("DEPARTMENT", "department", is_wide=True),
            Column("QUOTA", "quota"),
            Column("LIMIT", _limit),
            Column("HELD", "allocated"),
            Column("BORROWED", "borrowed"),
            Column("WAITING", "waiting"),
            Column("RUNNING", "runningPods"),
            Column("PENDING", "pendingPods"),
            Column("STATE", "state", is_wide=True),
        ),
        lambda item: f"gpu{item['kind']}.ballast.dev/{item['name']}",
        "There are no projects.",
    ),
    "nodes": Listing(
        (
            Column("NODE", "name"),
            Column("POOL", "nodePool"),
            Column("MODEL", "model"),
            Column("CARDS", lambda item: f"{item['healthyCards']}/{item['cards']}",
                   style=_health_style),
            Column("HELD", "held"),
            Column("FOREIGN", "foreign", is_wide=True),
            Column("FREE", "free"),
            Column("FREE WHOLE", "freeWhole"),
            Column("PODS", "pods"),
            Column("USED MIB", "usedMiB"),
        ),
        lambda item: f"gpunode.ballast.dev/{item['name']}",
        "There are no GPU nodes.",
    ),
    "gpus": Listing(
        (
            Column("NODE", "node"),
            Column("GPU", "index"),
            Column("MODEL", "model"),
            Column("UUID", "uuid", is_wide=True),
            Column("MIB", "memoryMiB"),
            Column("HEALTH", "health",
                   style=lambda item: "" if item["health"] == "Healthy" else "red"),
            Column("HELD", "held"),
            *_OF_USE,
            Column("PODS", lambda item: ", ".join(item["pods"]) or "-", folds=True),
        ),
        lambda item: f"gpunode.ballast.dev/{item['node']}/{item['index']}",
        "There are no GPUs.",
    ),
    "pods": Listing(
        (
            Column("NAMESPACE", "namespace"),
            Column("POD", "name"),
            Column("PROJECT", "project"),
            Column("USER", "user", is_wide=True),
            Column("NODE", "node"),
            Column("CARDS", lambda item: ",".join(map(str, item["cards"])), is_wide=True),
            Column("HELD", "held"),
            Column("MIB", "heldMiB"),
            *_OF_USE,
            Column("RUNS", lambda item: format_age(item["since"]) if item["since"] else "-"),
        ),
        lambda item: f"pod/{item['name']}",
        "No pod holds a GPU here.",
    ),
}  # fmt: skip
