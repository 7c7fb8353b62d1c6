"""Sets and removes the annotation ballast.dev/hold."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.api import names
from extender.cli.ask import Answer, key_of, listed, listed_or_none, path_of
from extender.kube.client import MERGE_PATCH, Client
from extender.kube.transport import Call

_GROUP: Final = "gpupodgroup.ballast.dev"


@dataclass(slots=True)
class Done:
    """The changed objects as `kind/name`, and the names without an object to change."""

    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


async def change(
    client: Client, namespace: str, wanted: Sequence[str], selector: str, *, is_held: bool
) -> Done:
    """Hold or resume workloads by name, or by labels of their pods. Raises a KubeError."""
    pods = await listed(client, path_of("pods", namespace), selector=selector)
    groups = await listed_or_none(client, path_of("gpupodgroups", namespace, names.API_PATH)) or []
    group_of = {each["metadata"]["name"]: each for each in groups}
    done = Done()
    paths: dict[str, str] = {}
    for name in wanted or ("",):
        found = targets_of(pods, group_of, name, is_held=is_held)
        if not found:
            done.missing.append(name or selector)
        for kind, target in found:
            root, plural = (
                (names.API_PATH, "gpupodgroups") if kind == _GROUP else ("/api/v1", "pods")
            )
            paths[f"{kind}/{target}"] = f"{path_of(plural, namespace, root)}/{target}"
    note = names.HOLD if is_held else None
    body = {"metadata": {"annotations": {names.ANNOTATION_HOLD: note}}}
    calls = [Call("PATCH", path, body=body, content_type=MERGE_PATCH) for path in paths.values()]
    await asyncio.gather(*(client.send(call) for call in calls))
    done.changed = list(paths)
    return done


def targets_of(
    pods: list[Answer], group_of: dict[str, Answer], name: str, *, is_held: bool
) -> list[tuple[str, str]]:
    """The objects to change, as (kind, name); if a pod has a group, the group."""
    found: dict[tuple[str, str], None] = {}
    if name in group_of and (is_held or _is_held(group_of[name])):
        found[_GROUP, name] = None
    for pod in pods:
        if name and not _is_of(pod, name):
            continue
        group = key_of(pod).partition("/")[2]
        if group in group_of and group != pod["metadata"]["name"]:
            waits = _waits(pod) if is_held else _is_held(group_of[group])
            if waits:
                found[_GROUP, group] = None
            if is_held or not _is_held(pod):
                continue
        if _waits(pod) and (is_held or _is_held(pod)):
            found["pod", pod["metadata"]["name"]] = None
    return list(found)


def _is_of(pod: Answer, name: str) -> bool:
    meta = pod["metadata"]
    owners = {each["name"] for each in meta.get("ownerReferences", ()) if each.get("controller")}
    return name in {meta["name"], key_of(pod).partition("/")[2], *owners}


def _waits(pod: Answer) -> bool:
    gates = {each["name"] for each in pod["spec"].get("schedulingGates", ())}
    return names.GATE in gates and "deletionTimestamp" not in pod["metadata"]


def _is_held(manifest: Answer) -> bool:
    notes = manifest["metadata"].get("annotations") or {}
    return bool(notes.get(names.ANNOTATION_HOLD) == names.HOLD)
