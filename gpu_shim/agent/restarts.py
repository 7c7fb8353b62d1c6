"""Restarts containers that started without the library, where kubelet starts them again.

The agent ends the first process; kubelet then starts the container anew, and the new one gets the
library. It is SIGKILL: a program may answer SIGTERM by ending with status 0, and kubelet does not
restart that where the pod's restartPolicy is OnFailure.
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

    The runtime told its number some time ago. The descriptor is opened before the control group is
    read: a process that took the number over in between is not the one that gets the signal.
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
    """The containers that started without the library, and what was done about each.

    `ended` is what was ended and has not been created again; `n_ended` counts all.
    """

    plugin: NodePlugin
    is_on: bool = False
    end: Callable[[RunningContainer], None] = end_first_process
    ended: dict[str, RunningContainer] = field(default_factory=dict)
    n_ended: int = 0
    #: Ids of the containers that were tried and still run, so that each is tried once.
    _tried: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.plugin.on_create = self._came_back

    def findings(self) -> Iterator[Breach]:
        """One for each container without the library, and for each that is to come back with it.

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
        """The containers to be ended now: kubelet starts them again."""
        if not self.is_on:
            return []
        return [
            each
            for each in self.plugin.unprotected()
            if each.id not in self._tried and self._is_restarted_by_kubelet(each.pod)
        ]

    def restart(self, container: RunningContainer) -> bool:
        """End the container; whether that was possible. It is not tried again."""
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
        """Whether a container of the pod that ends with an error is started again.

        An ephemeral container is not; the runtime does not tell which ones are.
        """
        row = self.plugin.agent.row(uid)
        return row is not None and row.restart_policy != "Never"

    def _came_back(self, made: RunningContainer) -> None:
        """Forget what `made` replaces: it may end before the next look."""
        self.ended = {
            id_: each
            for id_, each in self.ended.items()
            if (each.pod, each.name) != (made.pod, made.name)
        }

    def _forget(self) -> None:
        """Forget what has gone."""
        self._tried &= self.plugin.containers.keys()
        tenants = self.plugin.agent.tenants
        self.ended = {id_: each for id_, each in self.ended.items() if each.pod in tenants}

    def _breach(self, container: RunningContainer, what: str, is_evictable: bool) -> Breach:
        tenant = self.plugin.agent.tenants[container.pod]
        text = f"{tenant.namespace}/{tenant.pod}: container {container.name} {what}"
        return Breach(container.pod, Reason.GPU_UNPROTECTED, text, is_evictable)
