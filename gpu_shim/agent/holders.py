"""Keeps NVIDIA's device plugin off the cards that pods share.

For every shared card a holder pod requests a whole GPU and sleeps. Kubelet picks the card; the
agent reads the choice from the PodResources API, and from then on the ledger's index means that
card. Needed only if a device plugin owns the cards.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from extender.api.kinds import Row
from extender.api.names import HOLDER_PREFIX, NVIDIA_GPU
from extender.api.units import MILLI_PER_GPU
from extender.kube.client import Client
from extender.kube.errors import AlreadyExists, KubeError, NotFound
from extender.kube.resources import PODS
from gpu_shim.agent.cards import Cards
from gpu_shim.agent.indices import Hold
from gpu_shim.agent.podresources import Given, KubeletError, PodResources
from gpu_shim.agent.tenants import is_whole, live

EVERY_S: Final = 1.0
#: How soon kubelet is asked about a holder that was just created, and for how long: the pod that
#: shares the card cannot start before, and kubelet gives the GPU before the holder runs.
SOON_S: Final = 0.1
SOON_FOR_S: Final = 3.0
#: Delay before a holder is created again that kubelet refused (no such GPU, or none left).
RETRY_S: Final = 30.0
#: While kubelet reports a GPU for every holder, the API server is asked only this often, since
#: every node of the cluster asks.
LOOK_S: Final = 300.0
LABELS: Final = {
    "app.kubernetes.io/name": "ballast",
    "app.kubernetes.io/component": "gpu-holder",
}
_SELECTOR: Final = ",".join(f"{key}={value}" for key, value in LABELS.items())
_ENDED: Final = ("Failed", "Succeeded")

_log = structlog.get_logger("gpu_shim.holders")


@dataclass(slots=True, frozen=True)
class Style:
    """How holder pods are created."""

    node: str
    namespace: str
    image: str
    #: UID of the Node; empty if the agent's token does not name it.
    node_uid: str = ""


def shared_indices(rows: Sequence[Row]) -> set[int]:
    """Indices of cards of which a pod has only a part."""
    return {card.index for row in live(rows) for card in row.cards if card.milli < MILLI_PER_GPU}


def holder_name(node: str, index: int) -> str:
    """The name of the holder pod of a node's card."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:10]
    return f"{HOLDER_PREFIX}{digest}-{index}"


def holder_pod(style: Style, index: int) -> dict[str, Any]:
    """A pod that occupies a whole GPU, does nothing, and has no privileges."""
    contained = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    gpu = {NVIDIA_GPU: "1"}
    container = {
        "name": "hold",
        "image": style.image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": {"requests": gpu, "limits": gpu},
        "securityContext": contained,
    }
    metadata: dict[str, Any] = {
        "name": holder_name(style.node, index),
        "namespace": style.namespace,
        "labels": LABELS,
        # A pod that only holds a card must not keep the cluster autoscaler from removing the node.
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
    }
    if style.node_uid:
        # `kubectl drain` refuses to delete pods without a controller. The Node is named as the
        # controller: the agent creates a needed holder again, and an agent's pod as its owner would
        # take the holders with it at every upgrade.
        owner = {"apiVersion": "v1", "kind": "Node", "name": style.node, "uid": style.node_uid}
        metadata["ownerReferences"] = [owner | {"controller": True}]
    return {
        "metadata": metadata,
        "spec": {
            # Not scheduled: the ledger has already allocated the card.
            "nodeName": style.node,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


def _is_holder(given: Given, style: Style) -> bool:
    """Whether the pod is a holder, needed or not."""
    return given.namespace == style.namespace and given.name.startswith(HOLDER_PREFIX)


def holds_of(
    rows: Sequence[Row], given: Sequence[Given], style: Style
) -> tuple[list[Hold], list[str]]:
    """The cards that kubelet gave for each index, and sentences about GPUs without a row."""
    index_of = {holder_name(style.node, each): each for each in shared_indices(rows)}
    whole = {
        (row.namespace, row.name): tuple(card.index for card in row.cards)
        for row in live(rows)
        if is_whole(row)
    }
    holds, strangers = list[Hold](), list[str]()
    for each in given:
        if _is_holder(each, style):
            if each.name in index_of:
                holds.append(Hold((index_of[each.name],), each.uuids[:1]))
        elif (indices := whole.get((each.namespace, each.name))) is not None:
            holds.append(Hold(indices, each.uuids))
        else:
            strangers.append(f"{each.namespace}/{each.name} has {each.uuids[0]} without a row")
    return holds, strangers


@dataclass(slots=True)
class Holders:
    """Creates and removes holder pods as rows change, and updates `cards`."""

    api: Client
    kubelet: PodResources
    cards: Cards
    style: Style
    strangers: list[str] = field(default_factory=list)
    is_answered: bool = False
    _not_before_s: dict[str, float] = field(default_factory=dict)
    _looked_for: set[str] = field(default_factory=set)
    _look_at_s: float = 0.0
    #: Until then, kubelet may be about to give a new holder its GPU.
    _soon_until_s: float = 0.0

    def problems(self) -> list[str]:
        """Why cards are not ours yet, in sentences."""
        now_s = asyncio.get_running_loop().time()
        refused = [
            f"kubelet refused {name} a GPU: does NVIDIA's device plugin run?"
            for name, until_s in self._not_before_s.items()
            if now_s < until_s
        ]
        return self.cards.conflicts + refused + self.strangers

    async def run(self) -> None:
        """Keep the holders until cancelled; retry failures."""
        last = ""
        while True:
            try:
                await self.keep()
                last = ""
            except (KubeError, KubeletError) as error:
                if (why := str(error)) != last:
                    _log.warning("could not keep the holders of cards", error=why)
                last = why
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.cards.agent.changes(), self.pause_s())

    def pause_s(self) -> float:
        """Seconds until the next round, if no row changes before."""
        now_s = asyncio.get_running_loop().time()
        return SOON_S if now_s < self._soon_until_s else EVERY_S

    async def keep(self) -> None:
        """One round; raises KubeError and KubeletError."""
        agent = self.cards.agent
        if not agent.is_synced:
            return
        rows = agent.rows
        needed = {holder_name(self.style.node, each): each for each in shared_indices(rows)}
        given = await self.kubelet.given()
        if self._is_due(needed, given):
            await self._make(needed)
        holds, self.strangers = holds_of(rows, given, self.style)
        self.is_answered = True
        if set(needed) <= {each.name for each in given}:
            self._soon_until_s = 0.0
        if holds != self.cards.holds:
            self.cards.holds = holds
            self.cards.publish()

    def _is_due(self, needed: Collection[str], given: Sequence[Given]) -> bool:
        """Whether holders may have to be created or removed."""
        held = {each.name for each in given if _is_holder(each, self.style)}
        is_missing = any(each not in held and self._may_make(each) for each in needed)
        is_late = asyncio.get_running_loop().time() >= self._look_at_s
        return set(needed) != self._looked_for or is_missing or bool(held - set(needed)) or is_late

    def _may_make(self, name: str) -> bool:
        return asyncio.get_running_loop().time() >= self._not_before_s.get(name, 0.0)

    async def _make(self, needed: Mapping[str, int]) -> None:
        there = await self._there()
        now_s = asyncio.get_running_loop().time()
        for name, phase in there.items():
            if phase in _ENDED:
                self._not_before_s[name] = now_s + RETRY_S
            if name not in needed or phase in _ENDED:
                with contextlib.suppress(NotFound):
                    await self.api.delete(PODS, name, self.style.namespace)
        for name, index in needed.items():
            if name not in there and self._may_make(name):
                with contextlib.suppress(AlreadyExists):
                    body = holder_pod(self.style, index)
                    await self.api.create(PODS, body, self.style.namespace)
                    self._soon_until_s = now_s + SOON_FOR_S
                    _log.info("holds a card", index=index, pod=name)
        self._looked_for, self._look_at_s = set(needed), now_s + LOOK_S

    async def _there(self) -> Mapping[str, str]:
        """Phases of this node's holder pods by name."""
        page = await self.api.list_all(
            PODS,
            namespace=self.style.namespace,
            label_selector=_SELECTOR,
            field_selector=f"spec.nodeName={self.style.node}",
        )
        return {pod.metadata.name: pod.status.phase for pod in page.items}
