"""`ballast dispatch` as a process: watches always, and nominates while it holds the Lease."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from extender.dispatch.clusters import WorkerClusters
from extender.dispatch.dispatcher import Dispatcher
from extender.dispatch.state import WATCHED, DispatchState
from extender.http.app import Observed, build_observation_app
from extender.http.server import Address, Listener
from extender.kube.anew import run_anew
from extender.kube.client import Client
from extender.kube.election import Election, Leadership, terms_of
from extender.kube.reflector import Reflector

LEASE: Final = "ballast-dispatch"


@dataclass(slots=True, frozen=True)
class DispatchOptions:
    """The options of the command line; times in seconds."""

    identity: str
    metrics_listen: str
    kubeconfig: str = ""
    namespace: str = "ballast-system"
    secrets_namespace: str = "kueue-system"
    lease_duration_s: float = 15.0
    reserve_s: float = 300.0
    answer_s: float = 15.0


class Dispatch(Observed):
    """The program's parts, over connections that its caller closes."""

    def __init__(self, reader: Client, writer: Client, options: DispatchOptions) -> None:
        self._reader = reader
        self._writer = writer
        self._options = options
        self._changed = asyncio.Event()
        self._state = DispatchState(self._changed.set)
        self._reflectors: list[Reflector[Any]] = [
            Reflector(reader, each, self._state.apply, ends_on_restore=True) for each in WATCHED
        ]

    @property
    def is_ready(self) -> bool:
        """Whether everything that existed at the start is known."""
        return all(each.is_synced for each in self._reflectors)

    async def run(self) -> None:
        """Watch and nominate until cancelled."""
        options = self._options
        terms = terms_of(options.lease_duration_s)
        election = Election(self._reader, options.namespace, LEASE, options.identity, **terms)
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            await asyncio.gather(*(each.wait_synced() for each in self._reflectors))
            await election.run(self._lead)

    async def _lead(self, leadership: Leadership) -> None:
        """Starts with empty memory: another replica may have nominated meanwhile."""
        options = self._options
        self._writer.before_write = leadership.check
        clusters = WorkerClusters(self._reader, options.secrets_namespace, options.answer_s)
        try:
            dispatcher = Dispatcher(self._writer, self._state, clusters, options.reserve_s)
            await dispatcher.run(self._changed)
        finally:
            await clusters.close()


async def run(options: DispatchOptions) -> None:
    """Watch and nominate until cancelled. At the start, raises ListenError or KubeError."""

    async def serve() -> None:
        path = options.kubeconfig or None
        async with (
            await Client.connect(path, user_agent="ballast-dispatch") as reader,
            await Client.connect(path, user_agent="ballast-dispatch") as writer,
        ):
            program = Dispatch(reader, writer, options)
            address = Address.parse(options.metrics_listen)
            async with Listener(build_observation_app(program), address):
                await program.run()

    await run_anew(serve)
