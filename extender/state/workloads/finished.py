"""Pods that have succeeded, by group: they count towards its minimum as if they still ran.

They count while the API has them. After that they count if a live pod has the same controller as
one of the pods that were there when they ended. So a group that a new owner creates under an old
name starts from its full minimum. All of this comes from events, so a new leader knows only the
succeeded pods that the API still has.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

from extender.state.pods.facts import PodFacts
from extender.state.workloads.members import workload_key

#: Pods remembered after their deletion from the API; beyond that the oldest are forgotten.
_MAX_REMOVED: Final = 100_000


class _Success(Struct, frozen=True, gc=False):
    """A pod that has succeeded; `makers` are UIDs of controllers, "" for pods without one."""

    key: str
    name: str
    sub_group: str
    makers: frozenset[str]
    is_controlled: bool


#: Pods that count alike: by sub-group and, once deleted from the API, by makers.
_Sort = tuple[str, frozenset[str] | None]


class Finished:
    """Succeeded pods by UID, and how many of each sort by group key.

    A group may have tens of thousands of them, and is recounted whenever one comes or goes.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _Success] = {}
        self._named: dict[str, str] = {}
        self._removed: dict[str, None] = {}
        self._n_of: dict[str, Counter[_Sort]] = {}
        #: By group key, UIDs of deleted pods without a controller.
        self._bare: dict[str, set[str]] = {}

    def add(self, facts: PodFacts, peers: Iterable[PodFacts]) -> str:
        """Count a pod of a group that succeeded while `peers` were live; returns the group key."""
        self._forget(facts.uid)
        key = workload_key(facts.namespace, facts.group)
        name = workload_key(facts.namespace, facts.name)
        makers = frozenset((facts.maker_uid, *(peer.maker_uid for peer in peers)))
        success = _Success(key, name, facts.sub_group, makers, facts.is_controlled)
        self._pods[facts.uid] = success
        self._count(success, 1, is_removed=False)
        self._named[name] = facts.uid
        return key

    def remove(self, uid: str) -> str:
        """The pod is deleted from the API; returns the key of the group it counts for, or ""."""
        success = self._pods.get(uid)
        if success is None or uid in self._removed:
            return ""
        self._count(success, -1, is_removed=False)
        self._count(success, 1, is_removed=True)
        self._removed[uid] = None
        if not success.is_controlled:
            self._bare.setdefault(success.key, set()).add(uid)
        if len(self._removed) > _MAX_REMOVED:
            self._forget(next(iter(self._removed)))
        return success.key

    def give_way(self, facts: PodFacts) -> str:
        """Forget a succeeded pod of the same name as the live one; returns its group key, or ""."""
        uid = self._named.get(workload_key(facts.namespace, facts.name), "")
        return self._forget(uid) if uid and uid != facts.uid else ""

    def close(self, key: str) -> None:
        """The group has no live pod: forget its deleted pods without a controller."""
        for uid in tuple(self._bare.get(key, ())):
            self._forget(uid)

    def count(self, key: str, live: Collection[PodFacts]) -> Counter[str]:
        """How many pods of each sub-group count as succeeded beside the live ones."""
        found: Counter[str] = Counter()
        if sorts := self._n_of.get(key):
            present = {facts.maker_uid for facts in live}
            for (sub_group, makers), n_pods in sorts.items():
                if makers is None or not present.isdisjoint(makers):
                    found[sub_group] += n_pods
        return found

    def _forget(self, uid: str) -> str:
        """Stop counting the pod; returns its group key, or ""."""
        success = self._pods.pop(uid, None)
        if success is None:
            return ""
        self._count(success, -1, is_removed=uid in self._removed)
        self._removed.pop(uid, None)
        if self._named.get(success.name) == uid:
            del self._named[success.name]
        if bare := self._bare.get(success.key):
            bare.discard(uid)
            if not bare:
                del self._bare[success.key]
        return success.key

    def _count(self, success: _Success, change: int, *, is_removed: bool) -> None:
        sorts = self._n_of.setdefault(success.key, Counter())
        sort = success.sub_group, success.makers if is_removed else None
        sorts[sort] += change
        if not sorts[sort]:
            del sorts[sort]
        if not sorts:
            del self._n_of[success.key]
