"""Running workloads of a namespace, from its pods."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

import msgspec

from extender.api import names
from extender.api.aliases import GROUP_LABELS, USER_LABELS, first_of
from extender.api.demand import read_demand
from extender.api.ledger import read_cards
from extender.api.objects import Pod
from extender.api.reasons import Refused
from extender.api.units import api_time, format_gpus


class Running(msgspec.Struct, frozen=True):
    """Pods of one workload that have a node. `since` is RFC 3339; a request in MiB counts as what
    the pod's annotation says that it holds."""

    workload: str
    user: str
    pods: int
    milli: int
    since: str
    nodes: tuple[str, ...]

    @property
    def gpus(self) -> str:
        """The requested GPUs."""
        return format_gpus(self.milli)


def running_of(pods: Iterable[Pod]) -> list[Running]:
    """The running workloads, the youngest first."""
    members: defaultdict[str, list[tuple[Pod, int]]] = defaultdict(list)
    for pod in pods:
        demand = None if pod.is_terminal or not pod.spec.node_name else read_demand(pod)
        if demand is None or isinstance(demand, Refused) or not demand.is_gpu_work:
            continue
        cards = read_cards(pod.metadata.annotation(names.ANNOTATION_CARDS))
        held = sum(card.milli for card in cards)
        members[_name_of(pod)].append((pod, held or demand.total_milli))
    found = [_running(name, listed) for name, listed in members.items()]
    return sorted(found, key=lambda each: (each.since, each.workload), reverse=True)


def _running(name: str, members: list[tuple[Pod, int]]) -> Running:
    pods = [pod for pod, _ in members]
    times = [pod.status.start_time or pod.metadata.creation_timestamp for pod in pods]
    return Running(
        workload=f"{pods[0].metadata.namespace}/{name}",
        user=next((u for pod in pods if (u := first_of(pod.metadata.labels, USER_LABELS))), ""),
        pods=len(pods),
        milli=sum(milli for _, milli in members),
        since=_written(min((each for each in times if each), default=None)),
        nodes=tuple(sorted({pod.spec.node_name for pod in pods})),
    )


def _name_of(pod: Pod) -> str:
    owner = pod.metadata.controller
    return first_of(pod.metadata.labels, GROUP_LABELS) or (
        owner.name if owner else pod.metadata.name
    )


def _written(moment: datetime | None) -> str:
    return api_time(moment) if moment else ""
