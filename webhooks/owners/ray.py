"""RayCluster, also of a RayJob or RayService: the head and the minimum number of workers.

Workers above `minReplicas` come and go with the load. A worker of several hosts is that many pods.
During an upgrade a RayService has two clusters, and each is a gang of its own.

Source: ray-project/kuberay ray-operator/apis/ray/v1, controllers/ray/utils/constant.go.
"""

from typing import Final

from msgspec import Struct, field

from extender.api.objects import ObjectMeta, PodTemplateSpec
from webhooks.owners.origin import Owner, OwnerShape, Role

GROUP: Final = "ray.io/group"
ORIGIN_KIND: Final = "ray.io/originated-from-crd"
#: KubeRay's name for the group of the head.
HEAD_GROUP: Final = "headgroup"


class _HeadGroup(Struct):
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class _WorkerGroup(Struct, rename="camel"):
    group_name: str = ""
    min_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class _RayClusterSpec(Struct, rename="camel"):
    head_group_spec: _HeadGroup = field(default_factory=_HeadGroup)
    worker_group_specs: list[_WorkerGroup] | None = None


class RayCluster(Owner):
    """A RayCluster."""

    spec: _RayClusterSpec = field(default_factory=_RayClusterSpec)


def is_of_service(meta: ObjectMeta) -> bool:
    """Whether a RayService created the pod's cluster."""
    return meta.label(ORIGIN_KIND) == "RayService"


def role_of(meta: ObjectMeta) -> str:
    """The pod's group within the cluster."""
    return meta.label(GROUP)


def shape(cluster: RayCluster) -> OwnerShape:
    """The head, and one role for each worker group."""
    roles = [Role(HEAD_GROUP, 1, cluster.spec.head_group_spec.template)]
    for group in cluster.spec.worker_group_specs or ():
        n_workers = 0 if group.suspend else group.min_replicas or 0
        roles.append(Role(group.group_name, n_workers * group.num_of_hosts, group.template))
    return OwnerShape(roles)
