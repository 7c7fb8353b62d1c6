"""Finds a pod's owner: by its labels, else by its owner references upward.

Labels are used first, since they cost nothing. An owner is read for two reasons only: its spec says
how many pods belong together, or another known kind may own the pod's controller. If it cannot be
read, the pods form one group without a minimum, which never waits for missing pods.

Tenants write the labels. A forged label only joins a group of the same namespace, which the
pod-group label allows anyway; no name is looked up in another namespace.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from extender.api.aliases import GROUP_LABELS, first_of
from extender.api.objects import ObjectMeta, OwnerReference
from webhooks.owners.origin import NO_OWNER, Gang, Origin, Owner, gang_of, group_name
from webhooks.owners.table import BY_KIND, CLAIMING, OwnerClaim, OwnerKind

#: How many owners above the first are read; no known chain has more than four.
MAX_DEPTH: Final = 6
#: Becomes part of a URL path, and tenants write the references.
_VERSION: Final = re.compile(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?", re.ASCII)


@dataclass(slots=True, frozen=True)
class Asked:
    """A request to read an owner. `uid` is empty if only its name is known.

    `asker` is the UID of the pod's controller. It keeps a cached answer about an earlier owner of
    the same name, which had another controller below it, from being used for this one.
    """

    kind: OwnerKind
    version: str
    namespace: str
    name: str
    uid: str
    asker: str


Read = Callable[[Asked], Awaitable[Owner | None]]


def until(ends_at: float, read: Read) -> Read:
    """`read` with a deadline in the event loop's time; owners not read by then are unknown."""

    async def read_in_time(asked: Asked) -> Owner | None:
        try:
            async with asyncio.timeout_at(ends_at):
                return await read(asked)
        except TimeoutError:
            return None

    return read_in_time


async def trace(meta: ObjectMeta, read: Read) -> Origin:
    """The origin of the pod with this metadata, in which the namespace is filled in."""
    ref = meta.controller
    if ref is None or ref.kind in ("DaemonSet", "Node"):
        return NO_OWNER
    for kind, claim in CLAIMING:
        claimed = claim(meta, ref)
        if claimed and not (kind.is_alone and _is_sized_by(ref, meta)):
            return await _of_claim(meta, kind, claimed, read)
    return await _climb(meta, ref, read)


async def _of_claim(meta: ObjectMeta, kind: OwnerKind, claim: OwnerClaim, read: Read) -> Origin:
    """The origin of a pod whose labels name an owner."""
    owner = None
    if kind.plural:
        asker = meta.controller.uid if meta.controller else ""
        asked = Asked(kind, kind.version, meta.namespace, claim.name, claim.uid, asker)
        owner = await read(asked)
    return _origin(meta, kind, claim, owner)


async def _climb(meta: ObjectMeta, first: OwnerReference, read: Read) -> Origin:
    """Follows references to the highest known owner; an unknown controller counts as the owner."""
    ref, kind = first, _kind_of(first)
    if kind is None:
        return Origin(group=_group_of_unknown(first))
    seen = {ref.uid}
    owner = await _read_ref(meta, kind, ref, read)
    if owner is not None and _is_sized_by(first, meta):
        return _origin(meta, kind, OwnerClaim(ref.name, ref.uid), owner)
    while owner is not None and kind.climbs and len(seen) <= MAX_DEPTH:
        above = owner.metadata.controller
        higher = _kind_of(above) if above else None
        if above is None or higher is None or above.uid in seen:
            break
        if higher.is_alone and not kind.is_alone:
            # A step of a workflow may be a gang of its own.
            break
        ref, kind = above, higher
        seen.add(ref.uid)
        owner = await _read_ref(meta, kind, ref, read)
    return _origin(meta, kind, OwnerClaim(ref.name, ref.uid), owner)


async def _read_ref(
    meta: ObjectMeta, kind: OwnerKind, ref: OwnerReference, read: Read
) -> Owner | None:
    if not kind.plural:
        return None
    version = ref.api_version.rpartition("/")[2]
    if not _VERSION.fullmatch(version):
        version = kind.version
    return await read(Asked(kind, version, meta.namespace, ref.name, ref.uid, ref.uid))


def _origin(meta: ObjectMeta, kind: OwnerKind, claim: OwnerClaim, owner: Owner | None) -> Origin:
    part = kind.part_of(meta) if kind.part_of else ""
    whole = group_name(kind.kind.lower(), claim.name) if part else ""
    group = group_name(kind.kind.lower(), claim.name, part)
    if kind.is_alone:
        return Origin(kind.work, group, is_alone=True)
    gang, role = Gang(), ""
    if owner is not None and kind.shape is not None:
        shape = kind.shape(owner)
        if shape is None and kind.shape_of_named and first_of(meta.labels, GROUP_LABELS):
            shape = kind.shape_of_named(owner)
        if shape is None:
            return Origin(kind.work, group, is_alone=True)
        names = {each.name for each in shape.roles}
        roles = kind.roles_of(meta) if kind.roles_of else ()
        role = next((each for each in roles if each in names), "")
        gang = gang_of(shape, role)
    return Origin(
        kind.work, group, False, gang, role if role in dict(gang.sub_groups) else "", whole
    )


def _is_sized_by(ref: OwnerReference, meta: ObjectMeta) -> bool:
    """Whether the pod names its group itself, and its controller determines the group's size."""
    kind = _kind_of(ref)
    is_named = bool(first_of(meta.labels, GROUP_LABELS))
    return is_named and kind is not None and kind.shape_of_named is not None


def _kind_of(ref: OwnerReference) -> OwnerKind | None:
    return BY_KIND.get((ref.api_version.rpartition("/")[0], ref.kind))


def _group_of_unknown(ref: OwnerReference) -> str:
    """A name from the owner's kind; with its API group if we know another kind of that name."""
    is_taken = any(ref.kind == kind for _, kind in BY_KIND)
    kind = f"{ref.kind}.{ref.api_version.rpartition('/')[0]}" if is_taken else ref.kind
    return group_name(kind.lower(), ref.name)
