"""Restarts a program within the process when the cluster's store has gone back in time."""

import gc
from collections.abc import Awaitable, Callable

import structlog

from extender.kube.errors import Restored

_log = structlog.get_logger(__name__)


async def run_anew(program: Callable[[], Awaitable[None]]) -> None:
    """Run `program`; again, with nothing remembered, whenever it ends with Restored."""
    is_over = False
    while not is_over:
        try:
            await program()
            is_over = True
        except* Restored as errors:
            _log.warning("starting anew", errors=[str(error) for error in errors.exceptions])
        # Programs freeze what they have listed; what this one leaves behind is garbage.
        gc.unfreeze()
