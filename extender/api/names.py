"""Every label, annotation, resource and object name that Ballast reads or writes.

Names that other schedulers define for the same are in `extender.api.aliases` and `demand`.
"""

import re
from typing import Final

GROUP: Final = "ballast.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
#: Paths of our kinds, and of the API that `ballast view` answers.
API_PATH: Final = f"/apis/{API_VERSION}"
VIEW_PATH: Final = f"/apis/view.{API_VERSION}"
#: A DNS label, the form of names that Ballast defines.
DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)

SYSTEM_NAMESPACE: Final = "ballast-system"
#: Namespace of the node agent.
NODE_NAMESPACE: Final = "ballast-node"
#: Namespaces that belong to no project: pods of the cluster and of Ballast start without it.
SYSTEM_NAMESPACES: Final = ("kube-system", SYSTEM_NAMESPACE, NODE_NAMESPACE)
#: On a namespace that a GpuProject lists, with value `true`: admission policies select it.
LABEL_MANAGED: Final = "ballast.dev/managed"
MANAGED: Final = "true"
SCHEDULER_NAME: Final = "ballast-scheduler"
CONTROLLER_NAME: Final = "ballast-controller"
LEASE_NAME: Final = "ballast-control"

#: Kubernetes' own label, on GpuPodGroups that the controller creates.
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

#: On a ProvisioningRequest: a digest of the requests of the pods that it was created for.
ANNOTATION_REQUESTED: Final = "ballast.dev/requested"
#: On a ProvisioningRequest: the name of the workload that lacks nodes, in the same namespace.
ANNOTATION_WORKLOAD: Final = "ballast.dev/workload"

# -- on pods ---------------------------------------------------------------------------------

#: The scheduling gate that keeps a pod pending until the controller has reserved its cards.
GATE: Final = "ballast.dev/admission"
#: The extended resource every GPU pod requests: 1000 per GPU, 500 for half of one.
GPU_MILLI: Final = "ballast.dev/gpu-milli"
#: The device plugin's resource, in whole cards.
NVIDIA_GPU: Final = "nvidia.com/gpu"

#: The GpuProject whose quota the pod counts against; written at admission.
LABEL_PROJECT: Final = "ballast.dev/project"
#: The GpuDepartment of that project; written at admission.
LABEL_DEPARTMENT: Final = "ballast.dev/department"
#: `training`, `interactive`, `build` or `inference`: sets the priority class of a pod without one.
LABEL_WORKLOAD_KIND: Final = "ballast.dev/workload-kind"
#: The gang that the pod belongs to: the name of a GpuPodGroup in its namespace.
LABEL_POD_GROUP: Final = "ballast.dev/pod-group"
#: The sub-group of its group that the pod belongs to: one without children.
LABEL_SUB_GROUP: Final = "ballast.dev/sub-group"
#: The user that the workload belongs to: the users of a project have equal shares.
LABEL_USER: Final = "ballast.dev/user"
#: `preemptible` or `non-preemptible`.
LABEL_PREEMPTIBILITY: Final = "ballast.dev/preemptibility"

#: Condition of a pod that is or was pending: whether it is placed, and if not, why.
CONDITION_PLACED: Final = "ballast.dev/Placed"
#: Condition of a Workload of Kueue: whether a cluster was nominated, and what each one answered.
CONDITION_DISPATCHED: Final = "ballast.dev/Dispatched"
#: The plan of the controller for the pod, `<epoch> <node>`; the patch that removes the gate sets
#: it.
ANNOTATION_PLAN: Final = "ballast.dev/plan"
#: A revoked row of an unbound pod, by which it may never be bound: `<node> <epoch> <reservedAt>`.
ANNOTATION_REVOKED: Final = "ballast.dev/revoked"
#: Nodes on which kube-scheduler did not bind the pod as planned, and until when they are excluded.
ANNOTATION_REFUSED: Final = "ballast.dev/refused"
#: The cards that a pod holds, `<index>:<milli>:<MiB>`, comma separated; the Binding sets it.
ANNOTATION_CARDS: Final = "ballast.dev/cards"
#: A share of one card: "0.5" is half of its memory, and half of its compute time where the node
#: pool's timeSlicing.mode is Fair or Strict.
ANNOTATION_FRACTION: Final = "ballast.dev/gpu-fraction"
#: A share of one card, in MiB of its memory.
ANNOTATION_MEMORY: Final = "ballast.dev/gpu-memory"
#: `claim`: a ResourceClaim provides the share that ballast.dev/gpu-memory states; the webhook
#: writes both.
ANNOTATION_MEMORY_BY: Final = "ballast.dev/gpu-memory-by"
BY_CLAIM: Final = "claim"
#: The most MiB of the card that the pod may use, in node pools with memory lending.
ANNOTATION_MEMORY_LIMIT: Final = "ballast.dev/gpu-memory-limit"
#: Guaranteed share of compute time on each of the pod's cards, in thousandths; the webhook writes
#: it. Users write gpu-compute-request, such as "0.25".
ANNOTATION_COMPUTE_REQUEST: Final = "ballast.dev/gpu-compute-request"
#: Largest share of compute time on each of the pod's cards, in thousandths; the webhook writes it.
#: Users write gpu-compute-limit, such as "0.5".
ANNOTATION_COMPUTE_LIMIT: Final = "ballast.dev/gpu-compute-limit"
#: Node pools in order of preference, comma separated.
ANNOTATION_NODE_POOLS: Final = "ballast.dev/node-pools"
#: The GpuTopology of the topology level that the pod names; needed if several have that level.
ANNOTATION_TOPOLOGY: Final = "ballast.dev/topology"
#: All pods of the group run in one domain of this level, a node label. The GpuPodGroup takes
#: precedence.
ANNOTATION_TOPOLOGY_REQUIRED: Final = "ballast.dev/topology-required-level"
#: The pods of the group run in one domain of this level if one has room.
ANNOTATION_TOPOLOGY_PREFERRED: Final = "ballast.dev/topology-preferred-level"
#: How many pods of the group must run together. On a GpuPodGroup with the same minMember: the value
#: was copied from the pods and is updated with them.
ANNOTATION_MIN_MEMBER: Final = "ballast.dev/min-member"
#: The sub-groups of the group, all needed, and the pods of each that must run together:
#: `driver=1,workers=8`. A GpuPodGroup with sub-groups takes precedence.
ANNOTATION_SUB_GROUPS: Final = "ballast.dev/sub-groups"
#: Seconds of run time between two checkpoints: an eviction loses the work since the last one.
ANNOTATION_CHECKPOINT: Final = "ballast.dev/checkpoint-seconds"
#: Expected run time of the pod in seconds. The GpuPodGroup takes precedence.
ANNOTATION_EXPECTED_RUN: Final = "ballast.dev/expected-run-seconds"
#: Weight of the workload within its project, in node pools of policy DemandWeighted. The
#: GpuPodGroup takes precedence.
ANNOTATION_WEIGHT: Final = "ballast.dev/weight"
#: "true" on a gated pod, or on its GpuPodGroup: the pod does not start until the annotation is
#: removed. It keeps its age, and so its position in the queue.
ANNOTATION_HOLD: Final = "ballast.dev/hold"
HOLD: Final = "true"

#: How many replicas of the pod's owner are not evicted: those that have run longest, as far as they
#: fit the quota with other non-preemptible pods. Every other replica may be evicted.
ANNOTATION_FLOOR: Final = "ballast.dev/floor"
#: The owner that the pod or its gang is a replica of, such as `deployment-llm`; written at
#: admission on pods that state a floor.
LABEL_REPLICA_OF: Final = "ballast.dev/replica-of"

# -- on DeviceClasses (DRA) ---------------------------------------------------------------------

#: On a DeviceClass: the driver of the cards that it provides; `none`: it provides no cards.
LABEL_CARDS_OF: Final = "ballast.dev/cards-of"

# -- on GpuUsages -----------------------------------------------------------------------------

#: On a GpuUsage: its day, such as 2026-10-01.
LABEL_DAY: Final = "ballast.dev/day"
#: On a GpuUsage: its month, such as 2026-10.
LABEL_MONTH: Final = "ballast.dev/month"

PREEMPTIBLE: Final = "preemptible"
NON_PREEMPTIBLE: Final = "non-preemptible"
#: Kubernetes' `preemptionPolicy` of pods for which no other pod is evicted.
NEVER_PREEMPTS: Final = "Never"

#: On the mirror pod of a static pod.
ANNOTATION_MIRROR: Final = "kubernetes.io/config.mirror"

#: On nodes that Cluster Autoscaler or Karpenter must not remove, with value `true`.
LASTING_NODE_KEYS: Final = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
)

# -- the node agent's own pods ---------------------------------------------------------------

#: Name prefix of pods that keep the device plugin from allocating a shared card.
HOLDER_PREFIX: Final = "ballast-holder-"

# -- on nodes (written by GPU feature discovery; read here) ----------------------------------

LABEL_GPU_COUNT: Final = "nvidia.com/gpu.count"
LABEL_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
LABEL_GPU_MODEL: Final = "nvidia.com/gpu.product"
#: How many replicas the device plugin makes of one card, for pods that share it by time-slicing or
#: MPS.
LABEL_GPU_REPLICAS: Final = "nvidia.com/gpu.replicas"
LABEL_GPU_SHARING: Final = "nvidia.com/gpu.sharing-strategy"
#: `mixed`: MIG instances are counted by profile, and their cards not as GPUs.
LABEL_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"

#: On a Node: the sets of its cards with the same NUMA node: `0-3.4-7` are two sets of four.
LABEL_CARDS_BY_NUMA: Final = "ballast.dev/cards-by-numa"
#: On a Node: the sets of its cards on the same PCIe switch, written as by NUMA node.
LABEL_CARDS_BY_PCIE: Final = "ballast.dev/cards-by-pcie"
#: On a Node: the sets of its cards joined by NVLink, such as `0-1.2-3`; `0_2.1_3` are the pairs
#: 0, 2 and 1, 3.
LABEL_CARDS_BY_NVLINK: Final = "ballast.dev/cards-by-nvlink"

#: On a Node, with value `off`: no node agent runs there, as on nodes of a DRA driver.
LABEL_NODE_AGENT: Final = "ballast.dev/node-agent"
NO_AGENT: Final = "off"

#: On a GpuNode: the node pool of its node. The controller writes it for the extender, which does
#: not watch Nodes.
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
#: Workload kind -> the priority class of a pod that names none.
CLASS_OF_KIND: Final = {
    "inference": "ballast-inference",
    "build": "ballast-build",
    "interactive": "ballast-interactive",
    "training": "ballast-training",
}
#: Priority class of Run:ai or KAI -> our class of the same value. Aliases are read, never written.
CLASS_ALIASES: Final = {
    "inference": "ballast-inference",
    "build": "ballast-build",
    "interactive-preemptible": "ballast-interactive",
    "build-preemptible": "ballast-interactive",
    "train": "ballast-training",
}
#: Class or alias -> value.
CLASS_VALUES: Final = PRIORITY_CLASSES | {
    alias: PRIORITY_CLASSES[ours] for alias, ours in CLASS_ALIASES.items()
}
NON_PREEMPTIBLE_FROM: Final = 100


def class_of(name: str, value: int | None = None) -> str:
    """Our name of the class if `name` is an alias, else `name`.

    `value` is the value of the cluster's class `name`, None if there is no such class. A class with
    another value than ours is no alias.
    """
    ours = CLASS_ALIASES.get(name, name)
    return name if value is not None and value != PRIORITY_CLASSES.get(ours) else ours


def is_preemptible(priority: int, preemptibility: str = "") -> bool:
    """Whether work of this priority may be evicted for others; `preemptibility` overrides it."""
    if preemptibility == PREEMPTIBLE:
        return True
    if preemptibility == NON_PREEMPTIBLE:
        return False
    return priority < NON_PREEMPTIBLE_FROM


def is_dns_subdomain(text: str) -> bool:
    """Whether `text` can be the name of a pod or node, or the domain of a label (RFC 1123)."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None
