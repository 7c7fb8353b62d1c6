"""What the extender reads of one pod, and remembers of it from filter to bind.

The memory only saves bind a read of the pod. It is bounded, and may be empty (after a restart, or
if another replica answered filter); no decision depends on a missing entry.
"""

import re
from collections import OrderedDict
from typing import Final, Literal

from msgspec import Struct

from extender.api import names
from extender.api.demand import Demand, read_demand
from extender.api.objects import Pod
from extender.state.pods.facts import PodFacts, read_facts

_UID: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,127}", re.ASCII)
_EPOCH: Final = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)

#: Pods remembered: twice the largest burst we plan for, about 1 KiB each.
REMEMBERED_PODS: Final = 20_000

#: `planned` was released by the controller; `direct` is placed by the extender; `plain` has no GPU;
#: `withheld` waits for a plan and is bound nowhere, as pods of groups and with a revoked plan do.
Way = Literal["planned", "direct", "plain", "withheld"]


class RowName(Struct, frozen=True, gc=False):
    """The row that a pod's plan names."""

    node: str
    epoch: int


class PodClaim(Struct, frozen=True, gc=False, kw_only=True):
    """The fields of one pod, at one resourceVersion, that the extender decides by.

    `plan` names the row that the controller made. A pod without a new plan after a revoked one is
    withheld, so a row that the controller is about to free is never bound.
    """

    facts: PodFacts
    way: Way
    plan: RowName | None = None

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.facts.uid

    @property
    def demand(self) -> Demand:
        """The pod's requests."""
        return self.facts.demand

    @property
    def is_preemptible(self) -> bool:
        """Whether the pod may be evicted for other pods."""
        return names.is_preemptible(self.facts.priority, self.facts.preemptibility)

    @property
    def key(self) -> str:
        """`namespace/name` of the pod, for logs."""
        return self.facts.key


def is_uid(text: str) -> bool:
    """Whether `text` can be a UID: a UUID from the API server, or the hash of a static pod."""
    return _UID.fullmatch(text) is not None


def read_claim(pod: Pod) -> PodClaim:
    """The claim of `pod`. Never raises: what is not understood is a `problem` of its facts."""
    facts = read_facts(pod, read_demand(pod))
    plan = _read_plan(facts.plan)
    return PodClaim(facts=facts, way=_way_of(facts, plan), plan=plan)


class ClaimMemory:
    """The latest claims of the pods in recent filter calls."""

    def __init__(self, limit: int = REMEMBERED_PODS) -> None:
        self._limit = limit
        self._claims: OrderedDict[str, PodClaim] = OrderedDict()

    def remember(self, claim: PodClaim) -> None:
        """Keep `claim` as the latest of its UID; if there are too many, drop the oldest."""
        if claim.uid:
            self._claims.pop(claim.uid, None)
            self._claims[claim.uid] = claim
            if len(self._claims) > self._limit:
                self._claims.popitem(last=False)

    def forget(self, uid: str) -> None:
        """The pod is bound, so its claim is outdated."""
        self._claims.pop(uid, None)

    def claim_of(self, uid: str) -> PodClaim | None:
        """The latest claim of this UID, if it is still remembered."""
        return self._claims.get(uid)

    def __len__(self) -> int:
        return len(self._claims)


def _way_of(facts: PodFacts, plan: RowName | None) -> Way:
    if facts.is_gated:
        return "withheld"
    if plan is not None:
        return "planned"
    if facts.problem is not None:
        return "withheld"
    if not facts.demand.wants_gpu:
        return "plain"
    return "direct" if facts.is_direct else "withheld"


def _read_plan(text: str) -> RowName | None:
    """`<epoch> <node>`; None if it is not in this form."""
    epoch, _, node = text.partition(" ")
    if not _EPOCH.fullmatch(epoch) or not names.is_dns_subdomain(node):
        return None
    return RowName(node, int(epoch))
