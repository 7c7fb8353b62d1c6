"""Every label, annotation, resource and object name that Ballast reads or writes.

Names that other schedulers' users already write (aliases) live in `extender.api.demand` and
nowhere else.
"""

from typing import Final

GROUP: Final = "ballast.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

SYSTEM_NAMESPACE: Final = "ballast-system"
#: Of the node agent.
NODE_NAMESPACE: Final = "ballast-node"
#: Namespaces that belong to no project: the cluster's own pods and ours start without us.
SYSTEM_NAMESPACES: Final = ("kube-system", SYSTEM_NAMESPACE, NODE_NAMESPACE)
#: On a namespace that a GpuProject lists, with the value `true`; policies select namespaces by it.
LABEL_MANAGED: Final = "ballast.dev/managed"
MANAGED: Final = "true"
SCHEDULER_NAME: Final = "ballast-scheduler"
CONTROLLER_NAME: Final = "ballast-controller"
LEASE_NAME: Final = "ballast-control"

#: Kubernetes' own label; on GpuPodGroups that the controller makes.
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

#: On a ProvisioningRequest: a digest of the requests of the pods that it was created for.
ANNOTATION_REQUESTED: Final = "ballast.dev/requested"
#: On a ProvisioningRequest: the name of the workload that lacks nodes, in the same namespace.
ANNOTATION_WORKLOAD: Final = "ballast.dev/workload"

# -- on pods ---------------------------------------------------------------------------------

#: The scheduling gate that holds a pod until the controller has reserved its cards.
GATE: Final = "ballast.dev/admission"
#: The extended resource every GPU pod requests: 1000 per GPU, 500 for half of one.
GPU_MILLI: Final = "ballast.dev/gpu-milli"
#: The device plugin's resource, in whole cards.
NVIDIA_GPU: Final = "nvidia.com/gpu"

#: The GpuProject whose quota the pod counts against; written at admission.
LABEL_PROJECT: Final = "ballast.dev/project"
#: The GpuDepartment of that project; written at admission.
LABEL_DEPARTMENT: Final = "ballast.dev/department"
#: `training`, `interactive`, `build` or `inference`: the priority class where the pod names none.
LABEL_WORKLOAD_KIND: Final = "ballast.dev/workload-kind"
#: The gang that the pod belongs to: the name of a GpuPodGroup of its namespace.
LABEL_POD_GROUP: Final = "ballast.dev/pod-group"
#: The leaf of its group's tree of sub-groups that the pod belongs to.
LABEL_SUB_GROUP: Final = "ballast.dev/sub-group"
#: The user that the work belongs to: users of a project have equal shares of it.
LABEL_USER: Final = "ballast.dev/user"
#: `preemptible` or `non-preemptible`.
LABEL_PREEMPTIBILITY: Final = "ballast.dev/preemptibility"

#: The condition of a pod that waits, or has waited: whether it is placed, and if not, why.
CONDITION_PLACED: Final = "ballast.dev/Placed"
#: Of a Workload of Kueue: whether a cluster was nominated for it, and what each one answered.
CONDITION_DISPATCHED: Final = "ballast.dev/Dispatched"
#: What the controller decided, written in the patch that removes the gate: `<epoch> <node>`.
ANNOTATION_PLAN: Final = "ballast.dev/plan"
#: The row that was taken back from an unbound pod, and may never be bound:
#: `<node> <epoch> <reservedAt>`.
ANNOTATION_REVOKED: Final = "ballast.dev/revoked"
#: Nodes on which kube-scheduler did not bind the pod as planned, and until when they are left out.
ANNOTATION_REFUSED: Final = "ballast.dev/refused"
#: The cards a pod holds, written by the Binding: `<index>:<milli>:<MiB>`, comma separated.
ANNOTATION_CARDS: Final = "ballast.dev/cards"
#: A share of one card: "0.5" is half of its memory and of its time.
ANNOTATION_FRACTION: Final = "ballast.dev/gpu-fraction"
#: A share of one card, in MiB of its memory.
ANNOTATION_MEMORY: Final = "ballast.dev/gpu-memory"
#: `claim`: a ResourceClaim gives the share that ballast.dev/gpu-memory states; the webhook writes
#: both.
ANNOTATION_MEMORY_BY: Final = "ballast.dev/gpu-memory-by"
BY_CLAIM: Final = "claim"
#: The most MiB of the card that the pod may use, in node pools that lend memory that no pod
#: requested.
ANNOTATION_MEMORY_LIMIT: Final = "ballast.dev/gpu-memory-limit"
#: Guaranteed share of compute time on each of the pod's cards, such as "0.25".
ANNOTATION_COMPUTE_REQUEST: Final = "ballast.dev/gpu-compute-request"
#: Greatest share of compute time on each of the pod's cards, such as "0.5".
ANNOTATION_COMPUTE_LIMIT: Final = "ballast.dev/gpu-compute-limit"
#: Node pools in order of preference, comma separated.
ANNOTATION_NODE_POOLS: Final = "ballast.dev/node-pools"
#: The GpuTopology whose level the pod names; needed if several have the level.
ANNOTATION_TOPOLOGY: Final = "ballast.dev/topology"
#: All pods of the group run in one domain of this level, a node label. The GpuPodGroup takes
#: precedence.
ANNOTATION_TOPOLOGY_REQUIRED: Final = "ballast.dev/topology-required-level"
#: The pods of the group run in one domain of this level if one has room.
ANNOTATION_TOPOLOGY_PREFERRED: Final = "ballast.dev/topology-preferred-level"
#: How many pods of the group must run together. On a GpuPodGroup with the same minMember: it comes
#: from the pods, and follows them.
ANNOTATION_MIN_MEMBER: Final = "ballast.dev/min-member"
#: The sub-groups of the group, all needed, and the pods of each that must run together:
#: `driver=1,workers=8`. A GpuPodGroup with sub-groups takes precedence.
ANNOTATION_SUB_GROUPS: Final = "ballast.dev/sub-groups"
#: Seconds of running between two checkpoints of the pod: an eviction loses the work since the last.
ANNOTATION_CHECKPOINT: Final = "ballast.dev/checkpoint-seconds"
#: For how many seconds the pod is expected to run once it has started. The GpuPodGroup takes
#: precedence.
ANNOTATION_EXPECTED_RUN: Final = "ballast.dev/expected-run-seconds"
#: Weight of the workload among those of its project, in node pools of policy DemandWeighted. The
#: GpuPodGroup takes precedence.
ANNOTATION_WEIGHT: Final = "ballast.dev/weight"
#: "true" on a gated pod, or on its GpuPodGroup: the pod does not start until the annotation is
#: removed. It keeps its age, and so its position in the queue.
ANNOTATION_HOLD: Final = "ballast.dev/hold"
HOLD: Final = "true"

#: How many replicas of the pod's owner are kept: those that have run longest are not evicted, as
#: far as they fit the quota with other non-preemptible work. Every other replica may be evicted.
ANNOTATION_FLOOR: Final = "ballast.dev/floor"
#: The owner that the pod, or its whole gang, is a replica of: `deployment-llm`. Written at
#: admission on pods that state a floor.
LABEL_REPLICA_OF: Final = "ballast.dev/replica-of"

# -- on DeviceClasses (DRA) ---------------------------------------------------------------------

#: On a DeviceClass: the driver whose devices are cards; `none`: its devices are not cards.
LABEL_CARDS_OF: Final = "ballast.dev/cards-of"

# -- on GpuUsages -----------------------------------------------------------------------------

#: On a GpuUsage: its day, as 2026-10-01.
LABEL_DAY: Final = "ballast.dev/day"
#: On a GpuUsage: its month, as 2026-10.
LABEL_MONTH: Final = "ballast.dev/month"

PREEMPTIBLE: Final = "preemptible"
NON_PREEMPTIBLE: Final = "non-preemptible"

#: On a pod that kubelet made from a file of its node, and showed to the API server afterwards.
ANNOTATION_MIRROR: Final = "kubernetes.io/config.mirror"

#: On nodes that Cluster Autoscaler, or Karpenter, is not to remove while this is `true`.
LASTING_NODE_KEYS: Final = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
)

# -- the node agent's own pods ---------------------------------------------------------------

#: Pods that keep the device plugin off a shared card: the card is in the ledger already.
HOLDER_PREFIX: Final = "ballast-holder-"

# -- on nodes (written by GPU feature discovery; read here) ----------------------------------

LABEL_GPU_COUNT: Final = "nvidia.com/gpu.count"
LABEL_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
LABEL_GPU_MODEL: Final = "nvidia.com/gpu.product"
#: What the device plugin makes of one card: pods that share it by time-slicing or MPS.
LABEL_GPU_REPLICAS: Final = "nvidia.com/gpu.replicas"
LABEL_GPU_SHARING: Final = "nvidia.com/gpu.sharing-strategy"
#: `mixed`: cards that are cut into instances are counted by profile, and not among the GPUs.
LABEL_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"

#: On a Node: which of its cards are near one another, by NUMA node: `0-3.4-7` are two sets of four.
LABEL_CARDS_BY_NUMA: Final = "ballast.dev/cards-by-numa"
#: On a Node: the same by PCIe switch.
LABEL_CARDS_BY_PCIE: Final = "ballast.dev/cards-by-pcie"
#: On a Node: the same by NVLink, such as `0-1.2-3`; `0_2.1_3` are the pairs 0, 2 and 1, 3.
LABEL_CARDS_BY_NVLINK: Final = "ballast.dev/cards-by-nvlink"

#: On a Node, with the value `off`: no node agent runs there, as where a DRA driver gives out cards.
LABEL_NODE_AGENT: Final = "ballast.dev/node-agent"
NO_AGENT: Final = "off"

#: On a GpuNode, written by the controller: the node pool of its node. The extender, which does not
#: watch Nodes, reads it there.
LABEL_NODE_POOL: Final = "ballast.dev/node-pool"
#: The node pool of every node that no GpuNodePool selects.
DEFAULT_POOL: Final = "default"

# -- workload kinds and their priority classes -----------------------------------------------

KINDS: Final = ("training", "interactive", "build", "inference")

#: Priority class -> value. 100 and above is not preemptible.
PRIORITY_CLASSES: Final = {
    "ballast-inference": 125,
    "ballast-build": 100,
    "ballast-interactive": 75,
    "ballast-training": 50,
}
#: Workload kind -> the priority class it gets when it names none.
CLASS_OF_KIND: Final = {
    "inference": "ballast-inference",
    "build": "ballast-build",
    "interactive": "ballast-interactive",
    "training": "ballast-training",
}
#: Class of Run:ai or KAI -> ours of the same value: read wherever a class is named, never written.
CLASS_ALIASES: Final = {
    "inference": "ballast-inference",
    "build": "ballast-build",
    "interactive-preemptible": "ballast-interactive",
    "build-preemptible": "ballast-interactive",
    "train": "ballast-training",
}
#: What every class that we know is worth, under each of its names.
CLASS_VALUES: Final = PRIORITY_CLASSES | {
    alias: PRIORITY_CLASSES[ours] for alias, ours in CLASS_ALIASES.items()
}
NON_PREEMPTIBLE_FROM: Final = 100


def class_of(name: str, value: int | None = None) -> str:
    """Our name of the class where `name` is an alias, else `name`.

    `value` is that of the cluster's class of this name, None where there is none: a class with
    another value only happens to have the name of an alias, and is a class of its own.
    """
    ours = CLASS_ALIASES.get(name, name)
    return name if value is not None and value != PRIORITY_CLASSES.get(ours) else ours


def is_preemptible(priority: int, preemptibility: str = "") -> bool:
    """Whether work of this priority may be evicted for others; an explicit word decides first."""
    if preemptibility == PREEMPTIBLE:
        return True
    if preemptibility == NON_PREEMPTIBLE:
        return False
    return priority < NON_PREEMPTIBLE_FROM
