"""RayCluster, also of a RayJob or RayService: the head and the minimum number of workers.

Workers above `minReplicas` come and go with the load. But KubeRay submits a RayJob only once all
workers of its cluster run, so two clusters that each have some of their workers would wait for each
other: without Ray's autoscaler a RayJob needs all workers. A worker of several hosts is that many
pods. During an upgrade a RayService has two clusters, and each is a gang of its own.

Source: ray-project/kuberay ray-operator/apis/ray/v1, controllers/ray/utils/util.go,
controllers/ray/common/pod.go, controllers/ray/rayjob_controller.go.
"""

from typing import Final

from msgspec import Struct, field

from extender.api.objects import ObjectMeta, PodTemplateSpec
from webhooks.owners.origin import Owner, OwnerShape, Role

GROUP: Final = "ray.io/group"
#: Only pods of a RayService have this label; KubeRay labels clusters with their origin, not pods.
SERVE: Final = "ray.io/serve"
#: KubeRay's name for the group of the head.
HEAD_GROUP: Final = "headgroup"


class _HeadGroup(Struct):
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class _WorkerGroup(Struct, rename="camel"):
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)

    @property
    def fewest(self) -> int:
        """Replicas that the group always has."""
        return 0 if self.suspend else self.min_replicas or 0

    @property
    def wanted(self) -> int:
        """Replicas that KubeRay creates."""
        n_replicas = 0 if self.suspend else max(self.fewest, self.replicas or 0)
        return n_replicas if self.max_replicas is None else min(n_replicas, self.max_replicas)


class _RayClusterSpec(Struct, rename="camel"):
    enable_in_tree_autoscaling: bool | None = None
    head_group_spec: _HeadGroup = field(default_factory=_HeadGroup)
    worker_group_specs: list[_WorkerGroup] | None = None


class RayCluster(Owner):
    """A RayCluster."""

    spec: _RayClusterSpec = field(default_factory=_RayClusterSpec)


def is_of_service(meta: ObjectMeta) -> bool:
    """Whether a RayService created the pod's cluster."""
    return bool(meta.label(SERVE))


def roles_of(meta: ObjectMeta) -> tuple[str, ...]:
    """The pod's group within the cluster."""
    return (meta.label(GROUP),)


def shape(cluster: RayCluster) -> OwnerShape:
    """The head, and one role for each worker group."""
    spec, above = cluster.spec, cluster.metadata.controller
    is_of_job = above is not None and above.kind == "RayJob"
    needs_all = is_of_job and not spec.enable_in_tree_autoscaling
    roles = [Role(HEAD_GROUP, 1, spec.head_group_spec.template)]
    for group in spec.worker_group_specs or ():
        n_replicas = group.wanted if needs_all else group.fewest
        roles.append(Role(group.group_name, n_replicas * group.num_of_hosts, group.template))
    return OwnerShape(roles)
