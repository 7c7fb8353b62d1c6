"""Which optional kinds a cluster serves."""

import asyncio
from typing import Any

import structlog

from extender.kube.backoff import Backoff
from extender.kube.client import Client
from extender.kube.errors import NotFound, Throttled, Unavailable
from extender.kube.reflector import BACKOFF_CAP_S
from extender.kube.resources import DEVICES, DRA_PATH, Resource

_log = structlog.get_logger(__name__)


async def served_devices(client: Client) -> tuple[Resource[Any], ...]:
    """`DEVICES`, or nothing before Kubernetes 1.34 or without dynamic resource allocation.

    Returns once the API server answers.
    """
    backoff = Backoff(cap_s=BACKOFF_CAP_S)
    while True:
        try:
            await client.get_raw(DRA_PATH)
        except NotFound:
            return ()
        except (Unavailable, Throttled) as error:
            _log.warning("API not read", path=DRA_PATH, error=str(error))
            await asyncio.sleep(backoff.next_s())
        else:
            return DEVICES
