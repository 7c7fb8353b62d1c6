"""Asks the worker clusters, with the kubeconfigs that Kueue uses.

A MultiKueueCluster names a Secret, which is looked up in the namespace given to the program, so
that an installation can keep kubeconfigs with fewer rights in a separate namespace.
"""

import asyncio
import base64
import binascii
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from extender.api.objects import Secret
from extender.dispatch.kinds import KUBECONFIG_KEY, MultiKueueCluster
from extender.dispatch.ranking import Heard
from extender.kube.client import Client
from extender.kube.connection import Connection, Source
from extender.kube.errors import (
    KubeError,
    Misconfigured,
    NotFound,
    RequestRefused,
    Throttled,
    Unavailable,
)
from extender.kube.resources import SECRETS
from extender.kube.transport import Call
from extender.view.answers import API_VERSION, Prospect, SimulationSpec, WantedWorkload

#: A cluster that did not answer in time is skipped for this long, so that it does not delay all
#: other Workloads.
SILENT_S: Final = 30.0
_PATH: Final = f"/apis/{API_VERSION}/simulations"

_log = structlog.get_logger(__name__)


class _Status(msgspec.Struct):
    workloads: list[Prospect] = []


class _Simulated(msgspec.Struct):
    """The fields of a Simulation that are read; a newer version may have more."""

    status: _Status


class _CannotAskError(Exception):
    """Why a cluster cannot be asked, in the words of the condition."""


@dataclass(slots=True)
class _Known:
    """The connection to a cluster, and the version of its Secret."""

    version: str
    client: Client


class WorkerClusters:
    """Connections to worker clusters, each opened when it is needed, and again for a new Secret."""

    def __init__(self, manager: Client, secrets_namespace: str, answer_s: float) -> None:
        self._manager = manager
        self._namespace = secrets_namespace
        self._answer_s = answer_s
        self._known: dict[str, _Known] = {}
        #: Clusters that did not answer in time: until when they are not asked again, and why.
        self._silent: dict[str, tuple[float, str]] = {}

    async def close(self) -> None:
        """Close all connections."""
        for known in self._known.values():
            await known.client.close()
        self._known.clear()

    async def ask(
        self, name: str, cluster: MultiKueueCluster | None, wanted: list[WantedWorkload]
    ) -> Heard:
        """The prospect of the last of `wanted` there, with the others submitted before it.

        Never raises: a cluster that does not answer within `answer_s` is reported as silent.
        """
        clock = asyncio.get_running_loop().time
        until, why = self._silent.get(name, (0.0, ""))
        if clock() < until:
            return Heard(name, silence=why)
        try:
            async with asyncio.timeout(self._answer_s):
                client = await self._client(name, cluster)
                try:
                    return Heard(name, await self._ask(client, wanted))
                except RequestRefused:
                    # The refusal may concern a Workload in flight, for instance because an object
                    # of that name exists.
                    return Heard(name, await self._ask(client, wanted[-1:]))
        except _CannotAskError as error:
            return Heard(name, silence=str(error))
        except TimeoutError:
            why = f"no answer within {self._answer_s:g} s"
        except KubeError as error:
            why = _why(error)
            if not isinstance(error, Unavailable):
                return Heard(name, silence=why)
        self._silent[name] = clock() + SILENT_S, why
        return Heard(name, silence=why)

    async def _ask(self, client: Client, wanted: list[WantedWorkload]) -> Prospect:
        body = {"spec": SimulationSpec(workloads=wanted)}
        # The caller limits the total time.
        call = Call("POST", _PATH, "simulations", body=body, deadline_s=2 * self._answer_s)
        try:
            answer = msgspec.json.decode(await client.send(call), type=_Simulated).status.workloads
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _CannotAskError(f"its answer can't be read: {error}") from None
        if not answer:
            raise _CannotAskError("its answer is empty")
        return answer[-1]

    async def _client(self, name: str, cluster: MultiKueueCluster | None) -> Client:
        if cluster is None:
            raise _CannotAskError("there is no MultiKueueCluster of this name")
        if not cluster.is_active:
            raise _CannotAskError("Kueue is not connected to it (condition Active)")
        where = cluster.spec.cluster_source.kube_config
        if where is None or where.location_type != "Secret":
            raise _CannotAskError("its kubeconfig is in no Secret; ballast dispatch reads Secrets")
        secret = await self._secret(where.location)
        known, version = self._known.get(name), secret.metadata.resource_version
        if known is not None and known.version == version:
            return known.client
        client = Client(await Connection.open(Source(text=self._text(secret))))
        if known is not None:
            await known.client.close()
        self._known[name] = _Known(version, client)
        _log.info("connected to a cluster", cluster=name, secret=where.location)
        return client

    async def _secret(self, name: str) -> Secret:
        try:
            return await self._manager.get(SECRETS, name, self._namespace)
        except NotFound:
            raise _CannotAskError(f"there is no Secret {self._namespace}/{name}") from None

    def _text(self, secret: Secret) -> str:
        where = f"Secret {secret.metadata.key}"
        try:
            text = base64.b64decode((secret.data or {})[KUBECONFIG_KEY], validate=True).decode()
        except KeyError:
            raise _CannotAskError(f"{where} has no key {KUBECONFIG_KEY!r}") from None
        except (binascii.Error, UnicodeDecodeError):
            raise _CannotAskError(f"{where}: its {KUBECONFIG_KEY!r} is not text") from None
        if not text.strip():
            raise _CannotAskError(f"{where}: its {KUBECONFIG_KEY!r} is empty")
        return text


def _why(error: KubeError) -> str:
    """The meaning of a request's failure for the platform team."""
    if isinstance(error, NotFound):
        return "no ballast view is installed there"
    if isinstance(error, Misconfigured | Throttled | Unavailable):
        return error.message
    if error.status == 403:
        return (
            "its account may not create simulations.view.ballast.dev (ClusterRole ballast-ask-all)"
        )
    return error.message
