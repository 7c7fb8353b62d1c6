"""What a pod requests besides GPUs, CPU and memory, and which of it a plan can satisfy.

A volume's node affinity filters nodes. Requests that are not understood are left to kube-scheduler,
as a doubt: such a pod may use free cards, but nothing is evicted for it.
"""

from typing import Final

from msgspec import Struct

from extender.api.demand import BY_CLAIMS, Delivery
from extender.api.objects import NodeSelector, Pod
from extender.api.reasons import Reason, Refused

_DO_NOT_SCHEDULE: Final = "DoNotSchedule"


class VolumeView(Struct, frozen=True):
    """What is known of a PersistentVolumeClaim.

    `problem`: why no pod can use it now. `doubt`: why a planned node may turn out unsuitable.
    `affinity`: the nodes from which its volume can be reached; None: all. `is_open`: it gets its
    volume once kube-scheduler has chosen a node for a pod.
    """

    problem: str = ""
    doubt: str = ""
    affinity: NodeSelector | None = None
    is_open: bool = False


UNREAD: Final = VolumeView(problem="it is yet to be read")


def read_claim_names(pod: Pod) -> tuple[str, ...]:
    """The PersistentVolumeClaims of the pod, including those of its ephemeral volumes."""
    found = []
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.name}-{volume.name}")
    return tuple(dict.fromkeys(found))


def read_spec_doubts(pod: Pod, delivery: Delivery) -> str:
    """The requests of the pod that no plan checks, in words; empty if there are none. `delivery` is
    how it gets its cards."""
    spec = pod.spec
    containers = [*spec.containers, *(spec.init_containers or ())]
    spreads = spec.topology_spread_constraints or ()
    found = {
        "hostPort": any(port.host_port for each in containers for port in each.ports or ()),
        "topologySpreadConstraints": any(
            spread.when_unsatisfiable == _DO_NOT_SCHEDULE for spread in spreads
        ),
        "resourceClaims": bool(spec.resource_claims) and delivery not in BY_CLAIMS,
    }
    return ", ".join(what for what, is_asked in found.items() if is_asked)


def judge_volumes(
    key: str, claims: tuple[str, ...], known: dict[str, VolumeView], namespace: str
) -> tuple[Refused | None, str, tuple[NodeSelector, ...]]:
    """Why the pod `key` can't run on any node, its doubts, and its volumes' node affinities."""
    views = [(name, known.get(f"{namespace}/{name}", UNREAD)) for name in claims]
    for name, view in views:
        if view.problem:
            detail = f"{key}: PersistentVolumeClaim {name}: {view.problem}"
            return Refused(Reason.CLAIMS_NOT_MET, detail), "", ()
    doubts = [f"PersistentVolumeClaim {name} {view.doubt}" for name, view in views if view.doubt]
    affinities = tuple(view.affinity for _, view in views if view.affinity is not None)
    return None, ", ".join(doubts), affinities
