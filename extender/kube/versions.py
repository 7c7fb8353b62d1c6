"""The resource versions of one kind that were seen, by which a store is noticed that went back in
time: it was restored from a backup.

An API server may lag behind what was seen, too; a list is a quorum read, so one that lags for long
shows a restored store.
"""

import asyncio

import structlog

from extender.api.objects import ObjectMeta
from extender.kube.errors import Expired, Restored, Unavailable
from extender.kube.wire import Identity

_log = structlog.get_logger(__name__)


class Versions:
    """`current` is where a watch may go on: up to there all changes were delivered.

    `stale_s`: a list older than what was seen is refused for so long. `ends_on_restore`: a store
    that went back in time raises Restored; otherwise the list is taken as the truth.
    """

    def __init__(self, plural: str, *, stale_s: float, ends_on_restore: bool) -> None:
        self.current = ""
        self._plural = plural
        self._stale_s = stale_s
        self._ends_on_restore = ends_on_restore
        self._newest = 0
        self._stale_since: float | None = None

    def is_behind(self, version: str) -> bool:
        """Whether a newer version was seen."""
        return _number(version) < self._newest

    def has(self, version: str) -> bool:
        """Whether all changes up to this version were delivered."""
        return 0 < _number(version) <= _number(self.current)

    def take_list(self, version: str) -> None:
        """Raises Unavailable for a list older than what was seen: a lagging server sent it."""
        if self.is_behind(version):
            now = asyncio.get_running_loop().time()
            if self._stale_since is None:
                self._stale_since = now
            message = f"list of {self._plural}: is at version {_number(version)}"
            message += f", {self._newest} was seen before"
            if now - self._stale_since < self._stale_s:
                raise Unavailable(message, reason="StaleList")
            self._take_as_restored(message)
        self._stale_since = None
        self._newest = _number(version)

    def check_listed(
        self, identity: Identity | ObjectMeta, delivered: tuple[str, str] | None
    ) -> None:
        """Notice an object of a list that the watch should have told of long ago.

        All changes up to `current` were delivered. So an object of a list is as it was delivered
        (UID and version), or newer than that; anything else is from an earlier time.
        """
        version = identity.resource_version
        is_new = _number(version) > _number(self.current)
        if is_new or delivered == (identity.uid, version):
            return
        if self.current and _number(version):
            name = f"{identity.namespace}/{identity.name}"
            have = f"version {version} of {name} came after {self.current}"
            self._take_as_restored(f"list of {self._plural}: {have}")

    def advance(self, version: str) -> None:
        """A watch is at this version; raises Expired if a newer one was seen."""
        if self.is_behind(version):
            message = f"watch of {self._plural}: {version} after {self._newest}"
            raise Expired(message, reason="StaleWatch")
        self.current = version
        self._newest = max(self._newest, _number(version))

    def _take_as_restored(self, message: str) -> None:
        if self._ends_on_restore:
            raise Restored(f"the cluster's store went back in time: {message}")
        _log.warning("the cluster's store went back in time", error=message)
        # The list is the truth now, and no comparison with what was seen before holds.
        self._newest, self.current, self._stale_since = 0, "", None


def _number(version: str) -> int:
    """A resourceVersion as a number; 0, which compares as oldest, where it is none."""
    return int(version) if version.isascii() and version.isdigit() else 0
