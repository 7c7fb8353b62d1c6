"""LeaderWorkerSet: each replica, a leader and its workers, is a gang of its own.

Workers are created as soon as the leader exists (LeaderCreated), or once it is ready (LeaderReady).
In the latter case the leader starts alone.

Source: kubernetes-sigs/lws api/leaderworkerset/v1, pkg/webhooks/pod_webhook.go.
"""

import re
from typing import Final

from msgspec import Struct, field

from extender.api.objects import ObjectMeta, PodTemplateSpec
from webhooks.owners.origin import Owner, OwnerShape, Role

NAME: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER: Final = "leader"
WORKER: Final = "worker"
_ORDINAL: Final = re.compile(r".*-([0-9]{1,9})", re.ASCII)


class _LeaderWorkerTemplate(Struct, rename="camel"):
    size: int = 1
    leader_template: PodTemplateSpec | None = None
    worker_template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class _LeaderWorkerSetSpec(Struct, rename="camel"):
    startup_policy: str = "LeaderCreated"
    leader_worker_template: _LeaderWorkerTemplate = field(default_factory=_LeaderWorkerTemplate)


class LeaderWorkerSet(Owner):
    """A LeaderWorkerSet."""

    spec: _LeaderWorkerSetSpec = field(default_factory=_LeaderWorkerSetSpec)


def replica_of(meta: ObjectMeta) -> str:
    """The index of the pod's replica.

    LeaderWorkerSet's own webhook labels leaders with the index, and may run after ours; the
    leader's name ends in it.
    """
    if index := meta.label(GROUP_INDEX):
        return index
    match = _ORDINAL.fullmatch(meta.name) if LEADER in roles_of(meta) else None
    return match[1] if match else ""


def roles_of(meta: ObjectMeta) -> tuple[str, ...]:
    """The pod's role: leaders are created with worker index 0, workers get their index later."""
    return (LEADER if meta.label(WORKER_INDEX) == "0" else WORKER,)


def shape(owner: LeaderWorkerSet) -> OwnerShape:
    """One leader, and `size` - 1 workers."""
    template = owner.spec.leader_worker_template
    is_later = owner.spec.startup_policy == "LeaderReady"
    return OwnerShape(
        [
            Role(LEADER, 1, template.leader_template or template.worker_template),
            Role(WORKER, template.size - 1, template.worker_template, int(is_later)),
        ]
    )
