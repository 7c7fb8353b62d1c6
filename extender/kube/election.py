"""Leader election by a Lease, and a check before every write that we still lead.

Clocks of other machines are never trusted. Another process's hold is judged by when *we* last saw
its record change, and our own by when we *started* the last successful renewal, both on this
process's monotonic clock. We stop (`renew_s`) well before others may start (`duration_s`). Two
leaders can still exist for a moment, when a process is frozen between its check and its write; the
ledger's compare-and-swap makes that harmless.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from extender.api.objects import Lease, LeaseSpec
from extender.api.shutdown import end_task
from extender.api.versions import version_number
from extender.kube.backoff import Backoff
from extender.kube.client import MERGE_PATCH, Client
from extender.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeading
from extender.kube.resources import LEASES
from extender.kube.transport import Call
from extender.kube.wire import decode_object

RELEASE_DEADLINE_S: Final = 2.0
#: 2024-01-01 in Unix minutes; see `first_transitions`.
_EPOCH_MINUTES: Final = 28_401_120

_log = structlog.get_logger(__name__)
_LEADING = Gauge("ballast_kube_leading", "1 while this process holds the Lease.", ["lease"])
_RENEWALS = Counter(
    "ballast_kube_lease_renewals_total", "Attempts to renew the held Lease.", ["lease", "result"]
)


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """The timing of the election, in seconds; `retry_s` < `renew_s` < `duration_s`."""

    duration_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_s < self.duration_s:
            raise ValueError(f"need 0 < retry_s < renew_s < duration_s, have {self}")

    @property
    def request_s(self) -> float:
        """Deadline of one renewal, so that two attempts in sequence fit before `renew_s`."""
        return (self.renew_s - self.retry_s) / 2


def terms_of(duration_s: float) -> dict[str, float]:
    """Timing for this `duration_s`, in the proportions of the defaults."""
    usual = ElectionTiming()
    part = duration_s / usual.duration_s
    return {
        "duration_s": duration_s,
        "renew_s": usual.renew_s * part,
        "retry_s": usual.retry_s * part,
    }


class Leadership:
    """One unbroken hold of the Lease. `transitions` is larger than that of any hold before it."""

    def __init__(self, transitions: int, held_from: float, renew_s: float) -> None:
        self.transitions = transitions
        self._renewed_at = held_from
        self._renew_s = renew_s
        self._clock = asyncio.get_running_loop().time
        self._is_over = False

    @property
    def is_leading(self) -> bool:
        """Whether the last successful renewal started at most `renew_s` ago."""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """Seconds that this hold lasts without another renewal; 0 or less when lost."""
        return 0.0 if self._is_over else self._renewed_at + self._renew_s - self._clock()

    def check(self) -> None:
        """Raise NotLeading unless `is_leading`; the fence before every write."""
        if not self.is_leading:
            raise NotLeading(f"the Lease was not renewed for {self._renew_s:g} s or was lost")

    def extend(self, started: float) -> None:
        """Count a successful renewal that was started at `started`."""
        self._renewed_at = max(self._renewed_at, started)

    def end(self) -> None:
        """Make `check` raise from now on, whatever the clock says."""
        self._is_over = True


class Election:
    """Takes part in the election for one Lease. `identity` must be unique to this process."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        **terms: float,
    ) -> None:
        """`terms` are the fields of `ElectionTiming`: duration_s, renew_s, retry_s."""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._terms = ElectionTiming(**terms)
        #: The record as last seen, and since when on our clock.
        self._seen: LeaseSpec | None = None
        self._seen_at = 0.0
        self._version = ""
        self._most_transitions = 0

    async def run(self, lead: Callable[[Leadership], Awaitable[None]]) -> None:
        """Run `lead` whenever the Lease is ours, until `lead` returns or raises.

        When the Lease is lost, `lead` is cancelled and awaited before the next attempt. On exit a
        Lease that is still ours is released, so that another process can take it at once.
        """
        while True:
            leadership = await self._acquire()
            task = asyncio.ensure_future(lead(leadership))
            _LEADING.labels(self._name).set(1)
            _log.info(
                "started to lead", lease=self._name, identity=self._identity,
                transitions=leadership.transitions,
            )  # fmt: skip
            has_ended = False
            try:
                await self._keep(leadership, task)
                has_ended = task.done()
            finally:
                await end_task(task)
                _LEADING.labels(self._name).set(0)
                _log.info("stopped leading", lease=self._name, identity=self._identity)
                await self._release(leadership)
            error = None if task.cancelled() else task.exception()
            if error is not None and not _is_lost_lease(error):
                raise error
            if has_ended and error is None:
                return

    # -- taking the Lease ------------------------------------------------------------------------

    async def _acquire(self) -> Leadership:
        """Wait until the Lease is free or its holder has been silent for too long, and take it."""
        backoff = Backoff(self._terms.retry_s, self._terms.renew_s)
        while True:
            delay_s = self._terms.retry_s
            try:
                if leadership := await self._try_acquire():
                    return leadership
            except (Conflict, AlreadyExists):
                pass  # another process was faster; its record is read next time
            except KubeError as error:
                delay_s = backoff.next_s()
                _log.warning("could not read or take the Lease", lease=self._name, error=str(error))
            else:
                backoff.reset()
            # Keeps candidates that started together from staying in step.
            await asyncio.sleep(delay_s * random.uniform(1.0, 1.2))  # noqa: S311

    async def _try_acquire(self) -> Leadership | None:
        clock = asyncio.get_running_loop().time
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            spec = self._record(max(first_transitions(), self._most_transitions + 1))
            return await self._take(spec, exists=False)
        self._observe(lease)
        held = lease.spec
        # Our identity without a hold is from an earlier life of this process.
        if held.holder_identity and held.holder_identity != self._identity:
            duration_s = max(held.lease_duration_seconds or 0, self._terms.duration_s)
            if clock() - self._seen_at < duration_s:
                return None
        return await self._take(self._record(self._most_transitions + 1), exists=True)

    async def _take(self, spec: LeaseSpec, *, exists: bool) -> Leadership:
        started = asyncio.get_running_loop().time()
        lease = await self._write(spec, self._terms.request_s, exists=exists)
        self._observe(lease)
        assert spec.lease_transitions is not None
        return Leadership(spec.lease_transitions, started, self._terms.renew_s)

    # -- keeping it ------------------------------------------------------------------------------

    async def _keep(self, leadership: Leadership, task: "asyncio.Future[None]") -> None:
        """Renew until the hold is lost or `task` is done; never raises for a failed renewal."""
        while leadership.is_leading and not task.done():
            pause_s = min(self._terms.retry_s, leadership.left_s)
            await asyncio.wait([task], timeout=pause_s)
            if task.done() or not leadership.is_leading:
                break
            try:
                # A renewal must not outlive its own deadline or the hold.
                await self._renew(leadership, min(self._terms.request_s, leadership.left_s))
            except KubeError as error:
                _RENEWALS.labels(self._name, "failed").inc()
                _log.warning("could not renew the Lease", lease=self._name, error=str(error))
            else:
                _RENEWALS.labels(self._name, "renewed").inc()

    async def _renew(self, leadership: Leadership, deadline_s: float) -> None:
        started = asyncio.get_running_loop().time()
        spec = self._record(leadership.transitions)
        try:
            lease = await self._write(spec, deadline_s, exists=True)
        except (Conflict, NotFound):
            await self._look_again(leadership)
            return
        self._observe(lease)
        leadership.extend(started)

    async def _look_again(self, leadership: Leadership) -> None:
        """After a refused renewal, end the hold unless the record is still ours.

        It is ours if an earlier renewal succeeded and its answer was lost; the next renewal then
        has the right version.
        """
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            leadership.end()
            return
        is_older = version_number(lease.metadata.resource_version) < version_number(self._version)
        self._observe(lease)
        held = lease.spec
        is_ours = (held.holder_identity, held.lease_transitions) == (
            self._identity,
            leadership.transitions,
        )
        # A Lease that went back in time was restored from a backup, like everything else; the next
        # term begins with live reads.
        if is_older or not is_ours:
            leadership.end()

    async def _release(self, leadership: Leadership) -> None:
        """Give the Lease back if it is certainly ours; if that fails, it expires by itself."""
        if not leadership.is_leading:
            return
        leadership.end()
        spec = self._record(leadership.transitions)
        spec.holder_identity = ""
        spec.lease_duration_seconds = 1
        with suppress(KubeError):
            await self._write(spec, RELEASE_DEADLINE_S, exists=True)

    # -- the record ------------------------------------------------------------------------------

    def _record(self, transitions: int) -> LeaseSpec:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        seen = self._seen
        is_same = seen is not None and seen.lease_transitions == transitions
        return LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=max(1, round(self._terms.duration_s)),
            acquire_time=seen.acquire_time if seen is not None and is_same else now,
            renew_time=now,
            lease_transitions=transitions,
        )

    def _observe(self, lease: Lease) -> None:
        """Remember the record, and when we first saw it."""
        self._version = lease.metadata.resource_version
        self._most_transitions = max(self._most_transitions, lease.spec.lease_transitions or 0)
        if lease.spec != self._seen:
            self._seen = lease.spec
            self._seen_at = asyncio.get_running_loop().time()

    async def _write(self, spec: LeaseSpec, deadline_s: float, *, exists: bool) -> Lease:
        """Write the record over the version last seen, or create the Lease.

        Not fenced: the fence depends on it, and it must not queue behind other writes.
        """
        metadata = {"name": self._name, "namespace": self._namespace}
        body = LEASES.document({"metadata": metadata, "spec": spec})
        method, content_type = "POST", "application/json"
        path = LEASES.url(self._namespace)
        if exists:
            method, content_type = "PATCH", MERGE_PATCH
            path = LEASES.url(self._namespace, self._name)
            body = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        call = Call(
            method, path, "leases", body=body, content_type=content_type,
            deadline_s=deadline_s, is_fenced=False,
        )  # fmt: skip
        return decode_object(LEASES, await self._client.send(call))


def first_transitions() -> int:
    """The first number of a new Lease: minutes since 2024.

    Plans are numbered by it. If the Lease is deleted, the new one must not repeat the numbers of
    plans that may still be in flight; leaders change less than once a minute.
    """
    return max(1, int(time.time()) // 60 - _EPOCH_MINUTES)


def _is_lost_lease(error: BaseException) -> bool:
    """Whether `lead` ended only because it noticed the lost Lease before us."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(NotLeading)[1] is None
    return isinstance(error, NotLeading)
