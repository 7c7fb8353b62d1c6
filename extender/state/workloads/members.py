"""Which pods form a workload: those that name one group, or a single pod without a group."""

from collections.abc import Iterable, Mapping

from extender.state.pods.facts import PodFacts


class Members:
    """Pods by workload key, and the key of every pod. `facts` are the live pods, by UID."""

    def __init__(self, facts: Mapping[str, PodFacts]) -> None:
        self._facts = facts
        self.key_of: dict[str, str] = {}
        self.of: dict[str, set[str]] = {}
        self.by_namespace: dict[str, set[str]] = {}

    def join(self, facts: PodFacts) -> Iterable[str]:
        """Add the pod to its workload; returns the keys that changed."""
        key = workload_key(facts.namespace, facts.group or facts.name)
        changed: set[str] = set()
        if facts.group:
            changed.update(self._give_way(key))
        elif self.is_group(key):
            key = _lone_key(key)
        self._put(facts.uid, key)
        return {*changed, key}

    def leave(self, uid: str) -> str:
        """Remove the pod from its workload; returns the key, which goes with its last pod."""
        key = self.key_of.pop(uid)
        members = self.of[key]
        members.discard(uid)
        if not members:
            del self.of[key]
            namespace = key.partition("/")[0]
            self.by_namespace[namespace].discard(key)
            if not self.by_namespace[namespace]:
                del self.by_namespace[namespace]
        return key

    def is_group(self, key: str) -> bool:
        """Whether any live pod names the group with this key."""
        return any(self._facts[uid].group for uid in self.of.get(key, ()))

    def validate(self) -> None:
        """Assert that every pod is in exactly one workload, and that groups don't mix."""
        assert self.key_of.keys() == self._facts.keys()
        assert {uid for uids in self.of.values() for uid in uids} == self._facts.keys()
        for key, uids in self.of.items():
            assert uids, f"{key} has no members"
            assert all(self.key_of[uid] == key for uid in uids), key
            groups = {self._facts[uid].group for uid in uids}
            assert len(groups) == 1, f"{key} mixes {groups}"
            assert len(uids) == 1 or "" not in groups, f"{key} joins pods without a group"
        assert {key for keys in self.by_namespace.values() for key in keys} == self.of.keys()

    def _put(self, uid: str, key: str) -> None:
        self.key_of[uid] = key
        self.of.setdefault(key, set()).add(uid)
        self.by_namespace.setdefault(key.partition("/")[0], set()).add(key)

    def _give_way(self, key: str) -> Iterable[str]:
        """Give a single pod another key if a group appears that has its key."""
        for uid in [uid for uid in self.of.get(key, ()) if not self._facts[uid].group]:
            yield self.leave(uid)
            self._put(uid, _lone_key(key))
            yield _lone_key(key)


def workload_key(namespace: str, name: str) -> str:
    """`namespace/name`, of a group or of a single pod."""
    return f"{namespace}/{name}"


def _lone_key(key: str) -> str:
    """The key of a single pod that shares its name with a group; names have no `#`."""
    return f"{key}#pod"
