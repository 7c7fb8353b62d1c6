"""Restarts containers that started without the library, if kubelet starts them again.

The agent ends the first process; kubelet then starts a new container, which gets the library. The
signal is SIGKILL: a program may handle SIGTERM by exiting with status 0, and kubelet does not
restart such a container if the pod's restartPolicy is OnFailure.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from extender.api.reasons import Reason
from gpu_shim.agent.audit import Breach
from gpu_shim.agent.cgroups import PROC, is_in_container
from gpu_shim.agent.nri.plugin import NodePlugin, RunningContainer

_log = structlog.get_logger("gpu_shim.agent")


class NotEndedError(Exception):
    """The container's first process was not signalled; the message says why."""


def end_first_process(container: RunningContainer, proc: Path = PROC) -> None:
    """Send SIGKILL to the container's first process; raises NotEndedError.

    The runtime reported its number some time ago. The descriptor is opened before the control group
    is read, so a process that has reused the number does not get the signal.
    """
    if not container.pid:
        raise NotEndedError("the runtime does not tell its process")
    try:
        process = os.pidfd_open(container.pid)
    except OSError as error:
        raise NotEndedError(f"pidfd_open: {error.strerror}") from error
    try:
        if not is_in_container(container.pid, container.pod, container.id, proc):
            raise NotEndedError(f"process {container.pid} is not in it")
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError as error:
        raise NotEndedError(f"pidfd_send_signal: {error.strerror}") from error
    finally:
        os.close(process)


@dataclass(slots=True)
class Restarts:
    """The containers that started without the library, and whether they were ended.

    `ended` are those that were ended and have not been created again; `n_ended` counts all.
    """

    plugin: NodePlugin
    is_on: bool = False
    end: Callable[[RunningContainer], None] = end_first_process
    ended: dict[str, RunningContainer] = field(default_factory=dict)
    n_ended: int = 0
    #: Ids of the containers that were tried and still run; each is tried once.
    _tried: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.plugin.on_create = self._came_back

    def findings(self) -> Iterator[Breach]:
        """A breach for each container without the library, and for each ended one still missing.

        A pod is not evicted for a container that is being restarted.
        """
        self._forget()
        due = self.due()
        for each in self.plugin.unprotected():
            is_restarting = each in due or each.id in self.ended
            yield self._breach(each, "was started without the library", not is_restarting)
        for each in self.ended.values():
            if each.id not in self.plugin.containers:
                yield self._breach(each, "was ended, and has not started again", False)

    def due(self) -> list[RunningContainer]:
        """The containers to end now, because kubelet starts them again."""
        if not self.is_on:
            return []
        return [
            each
            for each in self.plugin.unprotected()
            if each.id not in self._tried and self._is_restarted_by_kubelet(each.pod)
        ]

    def restart(self, container: RunningContainer) -> bool:
        """End the container; return whether that succeeded. It is not tried again."""
        self._tried.add(container.id)
        about = {"uid": container.pod, "container": container.name, "pid": container.pid}
        try:
            self.end(container)
        except NotEndedError as error:
            _log.warning("could not end a container without the library", **about, why=str(error))
            return False
        _log.info("ended a container without the library", **about)
        self.ended[container.id] = container
        self.n_ended += 1
        return True

    def _is_restarted_by_kubelet(self, uid: str) -> bool:
        """Whether kubelet restarts a container of the pod that ends with an error.

        Not true of an ephemeral container, but the runtime does not report which ones are
        ephemeral.
        """
        row = self.plugin.agent.row(uid)
        return row is not None and row.restart_policy != "Never"

    def _came_back(self, made: RunningContainer) -> None:
        """Forget the container that `made` replaces: `made` may end before the next check."""
        self.ended = {
            id_: each
            for id_, each in self.ended.items()
            if (each.pod, each.name) != (made.pod, made.name)
        }

    def _forget(self) -> None:
        """Forget containers and pods that no longer exist."""
        self._tried &= self.plugin.containers.keys()
        tenants = self.plugin.agent.tenants
        self.ended = {id_: each for id_, each in self.ended.items() if each.pod in tenants}

    def _breach(self, container: RunningContainer, what: str, is_evictable: bool) -> Breach:
        tenant = self.plugin.agent.tenants[container.pod]
        text = f"{tenant.namespace}/{tenant.pod}: container {container.name} {what}"
        return Breach(container.pod, Reason.GPU_UNPROTECTED, text, is_evictable)
