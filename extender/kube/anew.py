"""Restarts a program within the process when what it has read of the cluster is not enough."""

import gc
from collections.abc import Awaitable, Callable

import structlog

from extender.kube.errors import NewlyServed, Restored

_log = structlog.get_logger(__name__)


async def run_anew(program: Callable[[], Awaitable[None]]) -> None:
    """Run `program`; again, with nothing remembered, when it ends with Restored or NewlyServed."""
    is_over = False
    while not is_over:
        try:
            await program()
            is_over = True
        except* (Restored, NewlyServed) as errors:
            _log.warning("starting anew", errors=[str(error) for error in errors.exceptions])
        # Programs freeze what they have listed; what this one leaves behind is garbage.
        gc.unfreeze()
