"""Whether a pod is a replica of an owner that states a floor."""

from contextlib import suppress

from extender.api import names
from extender.api.objects import ObjectMeta
from extender.api.units import UnitError
from extender.api.workload import read_floor
from extender.state.model import ReplicaOf


def read_replica(meta: ObjectMeta) -> ReplicaOf | None:
    """The owner and its floor; None if no valid floor is stated."""
    owner, floor = meta.label(names.LABEL_REPLICA_OF), 0
    with suppress(UnitError):
        floor = read_floor(meta.annotations)
    return ReplicaOf(owner, floor) if owner and floor else None
