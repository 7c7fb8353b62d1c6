"""What `ballast why` says of a name that has no live pod of Ballast.

It reads, with the user's rights, the pod of that name, and events that say why pods were refused.
"""

from collections.abc import Iterable
from typing import Final

from extender.api.names import SCHEDULER_NAME
from extender.api.units import format_age
from extender.cli.ask import Answer, ask, listed_or_none, path_of
from extender.cli.terminal.flags import Where
from extender.kube.client import Client

#: The reason of the event in which a controller says that its pod was refused.
_REFUSED: Final = "reason=FailedCreate"
_ENDED: Final = ("Succeeded", "Failed")


def explain_absence(where: Where, namespace: str, name: str) -> str:
    """Why no live pod has the name or this owner; empty if the cluster does not say."""

    async def read(client: Client) -> str:
        pods = await listed_or_none(
            client, path_of("pods", namespace), fields=f"metadata.name={name}"
        )
        events = await listed_or_none(client, path_of("events", namespace), fields=_REFUSED)
        return absence(name, pods or (), events or ())

    return ask(where, read)


def absence(name: str, pods: Iterable[Answer], events: Iterable[Answer]) -> str:
    """The sentence from the pods of this name, and from events in which pods were refused."""
    for pod in pods:
        phase, scheduler = pod["status"].get("phase"), pod["spec"].get("schedulerName")
        if phase in _ENDED:
            return f"pod {name} has ended ({phase})"
        if scheduler != SCHEDULER_NAME:
            return (
                f"pod {name} is left to the scheduler {scheduler}: Ballast schedules pods that"
                " request GPUs in namespaces of a GpuProject"
            )
    about = [each for each in events if f"{each['involvedObject']['name']}-".startswith(f"{name}-")]
    if not about:
        return ""
    last = max(about, key=_time)
    age = format_age(_time(last))
    return f"{_object(last)} could not create a pod {age} ago: {last.get('message', '')}"


def _object(event: Answer) -> str:
    about = event["involvedObject"]
    return f"{about['kind'].lower()}/{about['name']}"


def _time(event: Answer) -> str:
    return str(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
