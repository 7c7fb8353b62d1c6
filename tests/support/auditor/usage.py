"""GPU-seconds that rows held, computed from etcd's revisions alone.

It does not use `extender.usage`, so that an error there shows as a difference. A row holds cards
from its `reservedAt` to the `changedAt` of the revision that removes it. Rows from before the audit
are not counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from tests.support.auditor.world import Step

#: (project, user, node pool, card model, day, hour)
Slot = tuple[str, str, str, str, str, int]

_POOL: Final = "ballast.dev/node-pool"
_USER: Final = "ballast.dev/user"


class _Held(Struct):
    project: str
    user: str
    pool: str
    model: str
    milli: int
    since: int
    until: int | None = None


class UsageIntegral:
    """Sums up held GPU-seconds; its `observe` is a listener for a checker."""

    def __init__(self) -> None:
        self.n_ended = 0
        self._users: dict[str, str] = {}
        self._now: dict[str, dict[str, _Held]] = defaultdict(dict)
        self._all: list[_Held] = []

    def observe(self, step: Step) -> None:
        """Apply one revision."""
        change = step.change
        if change.is_deletion:
            return
        if change.kind == "Pod":
            meta = msgspec.json.decode(bytes(change.value))["metadata"]
            self._users[meta["uid"]] = (meta.get("labels") or {}).get(_USER, "")
        elif change.kind == "GpuNode":
            self._take(change.name, msgspec.json.decode(bytes(change.value)))

    def held(self, until: Mapping[str, int]) -> "Counter[Slot]":
        """Milli-GPU-seconds by slot; `until` has the last second that counts, by project."""
        sums: Counter[Slot] = Counter()
        for each in self._all:
            for second in self._seconds(each, until):
                moment = datetime.fromtimestamp(second, UTC)
                day, hour = moment.strftime("%Y-%m-%d"), moment.hour
                slot = (each.project, each.user, each.pool, each.model, day, hour)
                sums[slot] += each.milli
        return sums

    def over_quota(self, project: str, quota_milli: int, until: int) -> int:
        """Milli-GPU-seconds that the project held above a constant quota, in one pool."""
        levels: Counter[int] = Counter()
        for each in self._all:
            if each.project == project:
                for second in self._seconds(each, {project: until}):
                    levels[second] += each.milli
        return sum(max(0, level - quota_milli) for level in levels.values())

    def _seconds(self, each: _Held, until: Mapping[str, int]) -> Iterator[int]:
        end = until.get(each.project, 0)
        return iter(range(each.since, min(end, end if each.until is None else each.until)))

    def _take(self, node: str, obj: Any) -> None:
        spec = obj["spec"]
        devices = {each["index"]: each for each in obj.get("status", {}).get("devices", ())}
        pool = (obj["metadata"].get("labels") or {}).get(_POOL, "default")
        now = self._now[node]
        rows = {row["uid"]: row for row in spec["rows"] if row["state"] != "nominated"}
        for uid in now.keys() - rows.keys():
            now.pop(uid).until = spec["changedAt"]
            self.n_ended += 1
        for uid in rows.keys() - now.keys():
            row = rows[uid]
            model = devices[row["cards"][0]["index"]].get("model", "")
            milli = sum(card["milli"] for card in row["cards"])
            user, since = self._users.get(uid, ""), row["reservedAt"]
            now[uid] = _Held(row["project"], user, pool, model, milli, since)
            self._all.append(now[uid])
