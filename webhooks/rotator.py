"""Keeps the serving certificate current in the Secret, the webhook configurations, and memory.

All replicas do the same, without a leader: the Secret determines each step, it is replaced with its
resourceVersion, and all writes are idempotent. While the API server is unavailable nothing changes,
and the leaf in memory continues to be served.
"""

import asyncio
import base64
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog
from msgspec import Struct
from msgspec import field as named

from extender.api.objects import ObjectMeta, Secret
from extender.kube.client import Client
from extender.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from extender.kube.resources import SECRETS, Resource
from webhooks import certs, rotation
from webhooks.certs import Bundle
from webhooks.rotation import Chain, Schedule

#: How often a turn is retried at once after another replica wrote first.
_MAX_TURNS: Final = 5

log = structlog.get_logger("webhooks")


class ClientConfig(Struct, rename={"ca_bundle": "caBundle"}, kw_only=True):
    """How a webhook is called; only the CAs that its callers trust are decoded."""

    ca_bundle: str = ""


class Webhook(Struct, rename={"client_config": "clientConfig"}, kw_only=True):
    """One webhook of a configuration."""

    client_config: ClientConfig = named(default_factory=ClientConfig)


class MutatingWebhookConfiguration(Struct, kw_only=True):
    """The projection of a MutatingWebhookConfiguration."""

    metadata: ObjectMeta
    webhooks: list[Webhook] = []


class ValidatingWebhookConfiguration(MutatingWebhookConfiguration, kw_only=True):
    """The projection of a ValidatingWebhookConfiguration."""


_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
#: The two webhook configurations, which share one name.
CONFIGURATIONS: Final[tuple[Resource[Any], ...]] = (
    Resource(
        MutatingWebhookConfiguration,
        _REGISTRATION,
        "mutatingwebhookconfigurations",
        is_namespaced=False,
    ),
    Resource(
        ValidatingWebhookConfiguration,
        _REGISTRATION,
        "validatingwebhookconfigurations",
        is_namespaced=False,
    ),
)

Served = Callable[[Bundle], None]


@dataclass(slots=True)
class Rotator:
    """Keeps the chain in `secret` current, and calls `served` with each leaf to serve.

    `configuration` is the name of the webhook configurations that must trust the chain.
    """

    client: Client
    namespace: str
    secret: str
    configuration: str
    served: Served
    schedule: Schedule = field(default_factory=Schedule)
    check_every_s: float = 60.0
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _current: Bundle | None = None

    async def run(self) -> None:
        """Check the chain periodically; ends only by cancellation."""
        while True:
            await asyncio.sleep(self.check_every_s * random.uniform(0.8, 1.2))  # noqa: S311
            try:
                await self.turn()
            except KubeError as error:
                log.warning("certificate not checked", error=str(error))

    async def turn(self) -> None:
        """Bring the Secret, the configurations, and the served leaf up to date; may raise
        KubeError."""
        for _ in range(_MAX_TURNS):
            try:
                chain = await self._advance()
            except (Conflict, AlreadyExists):
                continue
            if chain.current != self._current:
                self._current = chain.current
                self.served(chain.current)
                log.info("certificate served", until=chain.current.ends_at.isoformat())
            return
        raise Conflict(f"secret {self.namespace}/{self.secret} kept changing")

    async def _advance(self) -> Chain:
        """Store and publish the chain that is due now, and return it."""
        try:
            found = await self.client.get(SECRETS, self.secret, self.namespace)
        except NotFound:
            found = None
        before, now = rotation.from_data(found.data or {}) if found else None, self.now()
        if before is None:
            chain = rotation.begin(self._current, now, self.schedule)
        else:
            is_published = await self._publish(before)
            chain = rotation.advance(before, now, self.schedule, is_published=is_published)
        if chain != before:
            await self._store(chain, found)
            await self._publish(chain)
        return chain

    async def _store(self, chain: Chain, found: Secret | None) -> None:
        meta = {"name": self.secret, "namespace": self.namespace}
        body = {
            "type": "kubernetes.io/tls",
            "metadata": meta,
            "data": rotation.to_data(chain),
        }
        if found is None:
            await self.client.create(SECRETS, body, self.namespace)
            return
        meta["resourceVersion"] = found.metadata.resource_version
        await self.client.replace(SECRETS, body, self.secret, self.namespace)

    async def _publish(self, chain: Chain) -> bool:
        """Write the chain's CAs into both configurations; return whether they already held them."""
        had = [await self._publish_in(kind, chain) for kind in CONFIGURATIONS]
        return all(had)

    async def _publish_in(self, kind: Resource[Any], chain: Chain) -> bool:
        try:
            found = await self.client.get(kind, self.configuration)
        except NotFound:
            # A configuration that is installed later gets the CAs at the next turn.
            return kind is not CONFIGURATIONS[0]
        wanted = base64.b64encode(chain.trusted).decode("ascii")
        stale = [
            at
            for at, webhook in enumerate(found.webhooks)
            if webhook.client_config.ca_bundle != wanted
        ]
        if not stale:
            return True
        ops = [
            {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": wanted}
            for at in stale
        ]
        version = found.metadata.resource_version
        await self.client.json_patch(kind, self.configuration, ops, resource_version=version)
        return False


@dataclass(slots=True)
class Folder:
    """Serves the leaf in a folder that another program renews, such as a mounted Secret."""

    path: Path
    served: Served
    check_every_s: float = 60.0
    _current: Bundle | None = None

    async def run(self) -> None:
        """Check the files periodically; ends only by cancellation."""
        while True:
            await asyncio.sleep(self.check_every_s)
            self.turn()

    def turn(self) -> None:
        """Serve the leaf in the folder; a half-written renewal is skipped until it is complete."""
        found = certs.load(self.path)
        if found is None or found == self._current or not found.is_whole():
            return
        self._current = found
        self.served(found)
        log.info("certificate served", until=found.ends_at.isoformat())
