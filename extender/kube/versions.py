"""The resource versions seen of one kind, which reveal a store that was restored from a backup.

An API server may also lag behind what was seen. But a list is a quorum read, so a list that lags
for long means a restored store.
"""

import asyncio

import structlog

from extender.api.objects import ObjectMeta
from extender.api.versions import version_number
from extender.kube.errors import Expired, Restored, Unavailable
from extender.kube.wire import Identity

_log = structlog.get_logger(__name__)


class Versions:
    """`current` is where a watch may continue: all changes up to it were delivered.

    `stale_s`: how long a list older than what was seen is refused. `ends_on_restore`: raise
    Restored for a store that went back in time, instead of taking the list as the truth.
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
        return version_number(version) < self._newest

    def has(self, version: str) -> bool:
        """Whether all changes up to this version were delivered."""
        return 0 < version_number(version) <= version_number(self.current)

    def take_list(self, version: str) -> None:
        """Raise Unavailable for a list older than what was seen: its server lags."""
        if self.is_behind(version):
            now = asyncio.get_running_loop().time()
            if self._stale_since is None:
                self._stale_since = now
            message = f"list of {self._plural}: is at version {version_number(version)}"
            message += f", {self._newest} was seen before"
            if now - self._stale_since < self._stale_s:
                raise Unavailable(message, reason="StaleList")
            self._take_as_restored(message)
        self._stale_since = None
        self._newest = version_number(version)

    def check_listed(
        self, identity: Identity | ObjectMeta, delivered: tuple[str, str] | None
    ) -> None:
        """Notice a listed object that the watch should have delivered long ago.

        All changes up to `current` were delivered. So a listed object is the delivered one (UID and
        version) or newer than `current`; anything else is from an earlier time.
        """
        version = identity.resource_version
        is_new = version_number(version) > version_number(self.current)
        if is_new or delivered == (identity.uid, version):
            return
        if self.current and version_number(version):
            have = f"version {version} of {identity.key} came after {self.current}"
            self._take_as_restored(f"list of {self._plural}: {have}")

    def advance(self, version: str) -> None:
        """Note a version from a watch; raises Expired if a newer one was seen."""
        if self.is_behind(version):
            message = f"watch of {self._plural}: {version} after {self._newest}"
            raise Expired(message, reason="StaleWatch")
        self.current = version
        self._newest = max(self._newest, version_number(version))

    def _take_as_restored(self, message: str) -> None:
        if self._ends_on_restore:
            raise Restored(f"the cluster's store went back in time: {message}")
        _log.warning("the cluster's store went back in time", error=message)
        # The list is the truth now, and comparisons with earlier versions are meaningless.
        self._newest, self.current, self._stale_since = 0, "", None
