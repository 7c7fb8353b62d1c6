"""Which optional kinds a cluster serves."""

import asyncio
from typing import Any, Final, NoReturn

import structlog

from extender.kube.backoff import Backoff
from extender.kube.client import Client
from extender.kube.errors import KubeError, NewlyServed, NotFound
from extender.kube.reflector import BACKOFF_CAP_S
from extender.kube.resources import DEVICE_CLASSES, DEVICES, Resource

#: Seconds between two looks for kinds that were not served at the start.
LOOK_S: Final = 60.0

_log = structlog.get_logger(__name__)


async def served_devices(client: Client) -> tuple[Resource[Any], ...]:
    """`DEVICES`, or nothing before Kubernetes 1.34 or without dynamic resource allocation.

    Lists one of the kinds, because a program may lack the right to read which APIs are served.
    Returns once the API server answers; a refusal is tried again, as in a reflector.
    """
    backoff = Backoff(cap_s=BACKOFF_CAP_S)
    while True:
        try:
            await client.list_page(DEVICE_CLASSES, limit=1)
        except NotFound:
            return ()
        except KubeError as error:
            _log.warning("devices not listed", error=str(error))
            await asyncio.sleep(backoff.next_s())
        else:
            return DEVICES


async def watch_for_devices(client: Client) -> NoReturn:
    """Raise NewlyServed once `DEVICES` are served, as after an upgrade of the cluster."""
    devices: tuple[Resource[Any], ...] = ()
    while not devices:
        await asyncio.sleep(LOOK_S)
        devices = await served_devices(client)
    raise NewlyServed("the cluster serves dynamic resource allocation now")
