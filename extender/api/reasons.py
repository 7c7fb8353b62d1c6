"""The closed list of reasons, each with the one sentence shown for it.

The same word appears in FailedNodes, events, conditions, metrics and the command line. The
sentences are constant, without counters, times or names: kube-scheduler retries at once when the
text of a refusal changes between two attempts. Details are kept apart from them.
"""

from enum import StrEnum
from typing import Final

import msgspec


class Reason(StrEnum):
    """Why a workload is pending or placed, a pod evicted, a node refused, or an object invalid."""

    # A workload is pending.
    GANG_INCOMPLETE = "GangIncomplete"
    INSUFFICIENT_GPU = "InsufficientGpu"
    INSUFFICIENT_NODE_RESOURCES = "InsufficientNodeResources"
    NO_MATCHING_NODE = "NoMatchingNode"
    NO_TOPOLOGY_DOMAIN = "NoTopologyDomain"
    POD_AFFINITY_UNMET = "PodAffinityUnmet"
    NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
    OVER_FAIR_SHARE = "OverFairShare"
    OVER_LIMIT = "OverLimit"
    #: The project has used its GPU-hours of the month.
    OVER_BUDGET = "OverBudget"
    UNKNOWN_NODE_POOL = "UnknownNodePool"
    UNKNOWN_PROJECT = "UnknownProject"
    UNKNOWN_TOPOLOGY = "UnknownTopology"
    INVALID_REQUEST = "InvalidRequest"
    PRIORITY_CLASS_NOT_ALLOWED = "PriorityClassNotAllowed"
    HELD_BY_OTHER_GATE = "HeldByOtherGate"
    HELD_BY_OWNER = "HeldByOwner"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    WAITING_FOR_TURN = "WaitingForTurn"
    #: Its pods name a group of unknown size.
    GANG_SIZE_UNKNOWN = "GangSizeUnknown"
    PLACEMENT_REFUSED = "PlacementRefused"
    RELEASE_REFUSED = "ReleaseRefused"
    CLAIMS_NOT_MET = "ClaimsNotMet"
    SCHEDULER_AWAY = "SchedulerAway"
    # A workload starts.
    RESERVED = "Reserved"
    SCHEDULED = "Scheduled"
    # A pod is evicted.
    RECLAIMED = "Reclaimed"
    PREEMPTED = "Preempted"
    MOVED = "Moved"
    #: Also of the node: it no longer runs pods that Ballast placed.
    NODE_EMPTIED = "NodeEmptied"
    GANG_STALE = "GangStale"
    #: In elastic node pools whose autoscaler reads pods.
    GATED_AGAIN = "GatedAgain"
    # A pod exceeds its share of a GPU.
    GPU_UNPROTECTED = "GpuUnprotected"
    GPU_MEMORY_OVER_CAP = "GpuMemoryOverCap"
    GPU_NOT_GIVEN = "GpuNotGiven"
    GPU_CONTAINER_RESTARTED = "GpuContainerRestarted"
    UNLEDGERED = "Unledgered"
    # An object is valid, or not.
    ACCEPTED = "Accepted"
    INVALID_FIGURES = "InvalidFigures"
    INVALID_LABELS = "InvalidLabels"
    UNKNOWN_REFERENCE = "UnknownReference"
    NAMESPACE_TAKEN = "NamespaceTaken"
    # What a queue's pods hold, beside its quota.
    WITHIN_QUOTA = "WithinQuota"
    ABOVE_QUOTA = "AboveQuota"
    ABOVE_FAIR_SHARE = "AboveFairShare"
    # What a project has used of its budget of GPU-hours, besides OVER_BUDGET.
    WITHIN_BUDGET = "WithinBudget"
    USAGE_UNKNOWN = "UsageUnknown"
    # A Workload of Kueue was dispatched to one of several clusters, or to none.
    NOMINATED = "Nominated"
    NO_CLUSTER = "NoCluster"
    # The extender refuses a node.
    NOT_PLANNED = "NotPlanned"
    PLANNED_ELSEWHERE = "PlannedElsewhere"
    PLAN_NOT_RESERVED = "PlanNotReserved"
    CARDS_BUSY = "CardsBusy"
    CARD_UNHEALTHY = "CardUnhealthy"
    UNKNOWN_NODE = "UnknownNode"
    VICTIMS_PROTECTED = "VictimsProtected"


#: Reasons to evict a pod so that it starts again on another node, and all reasons to evict a pod.
MOVES: Final = frozenset({Reason.MOVED, Reason.NODE_EMPTIED})
STOPS: Final = MOVES | {Reason.RECLAIMED, Reason.PREEMPTED, Reason.GANG_STALE}

SENTENCES: dict[Reason, str] = {
    Reason.GANG_INCOMPLETE: "fewer pods exist than must start together",
    Reason.INSUFFICIENT_GPU: "no node of the workload's pools has enough free cards",
    Reason.INSUFFICIENT_NODE_RESOURCES: "nodes with free cards lack CPU, memory or pod slots",
    Reason.NO_MATCHING_NODE: "no node matches the selectors, tolerations and card model",
    Reason.NO_TOPOLOGY_DOMAIN: "no domain of the required topology level has room for all pods",
    Reason.POD_AFFINITY_UNMET: "pod affinity or anti-affinity rules out the nodes with room",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "non-preemptible work runs within quota only",
    Reason.OVER_FAIR_SHARE: "the project has its fair share, so nothing is reclaimed for it",
    Reason.OVER_LIMIT: "the project or its department is at its limit",
    Reason.OVER_BUDGET: "the project has used its GPU-hours of this month and borrows no more",
    Reason.UNKNOWN_NODE_POOL: "the requested node pool does not exist",
    Reason.UNKNOWN_PROJECT: "the project does not exist",
    Reason.UNKNOWN_TOPOLOGY: "the requested topology or topology level does not exist",
    Reason.PRIORITY_CLASS_NOT_ALLOWED: "the project does not allow the priority class",
    Reason.INVALID_REQUEST: "the GPU request is not understood",
    Reason.HELD_BY_OTHER_GATE: "another controller's scheduling gate holds its pods",
    Reason.HELD_BY_OWNER: "the annotation ballast.dev/hold holds its pods",
    Reason.WAITING_FOR_VICTIMS: "its cards are reserved, and pods that hold them are terminating",
    Reason.WAITING_FOR_TURN: "workloads ahead of it are decided first",
    Reason.GANG_SIZE_UNKNOWN: "nothing says how many pods of the group must run together",
    Reason.PLACEMENT_REFUSED: "kube-scheduler did not bind it where it was planned",
    Reason.RELEASE_REFUSED: "the API server refuses the patch that releases its pod",
    Reason.CLAIMS_NOT_MET: "a volume or device claim of its pods is not met",
    Reason.SCHEDULER_AWAY: "kube-scheduler binds none of the pods released to it",
    Reason.RESERVED: "cards are reserved in the ledger",
    Reason.SCHEDULED: "every required pod is bound",
    Reason.RECLAIMED: "evicted for a project below its fair share",
    Reason.PREEMPTED: "evicted for work of higher priority",
    Reason.MOVED: "evicted to start again in another place, so that other work fits here",
    Reason.NODE_EMPTIED: "evicted to start again on another node, so that its node becomes empty",
    Reason.GANG_STALE: "evicted because too few pods of its gang ran for too long",
    Reason.GATED_AGAIN: "deleted while it waited, so that no node is added for it",
    Reason.GPU_UNPROTECTED: "a process uses a shared card without the library",
    Reason.GPU_MEMORY_OVER_CAP: "the pod has more of a card's memory than its cap",
    Reason.GPU_NOT_GIVEN: "the pod uses a card that is allocated to other pods",
    Reason.GPU_CONTAINER_RESTARTED: "a container was ended to start again with the library",
    Reason.UNLEDGERED: "the pod holds GPUs that Ballast did not allocate",
    Reason.ACCEPTED: "every value is understood, and every named object exists",
    Reason.INVALID_FIGURES: "a figure is not understood",
    Reason.INVALID_LABELS: "a label or value of the node is not understood",
    Reason.UNKNOWN_REFERENCE: "an object that it names does not exist",
    Reason.NAMESPACE_TAKEN: "a namespace that it lists belongs to an older project",
    Reason.WITHIN_QUOTA: "its pods hold no more than its quota",
    Reason.ABOVE_QUOTA: "its pods hold more than its quota, and no more than its fair share",
    Reason.ABOVE_FAIR_SHARE: "its pods hold more than its fair share",
    Reason.WITHIN_BUDGET: "it has GPU-hours of this month left",
    Reason.USAGE_UNKNOWN: "its usage of this month is not known, so its budget has no effect",
    Reason.NOMINATED: "the clusters were asked, and the best was nominated",
    Reason.NO_CLUSTER: "no cluster that gave an answer can run it",
    Reason.NOT_PLANNED: "the pod is not planned and may not be placed directly",
    Reason.PLANNED_ELSEWHERE: "the pod is planned on another node",
    Reason.PLAN_NOT_RESERVED: "the pod's plan has no row in the ledger",
    Reason.CARDS_BUSY: "no card has enough left",
    Reason.CARD_UNHEALTHY: "the planned card is unhealthy",
    Reason.UNKNOWN_NODE: "the node has no GpuNode",
    Reason.VICTIMS_PROTECTED: "the pods to be preempted are protected",
}


#: What the owner of a pending workload can do, in one sentence. docs/reasons.md has the same text.
HELP: dict[Reason, str] = {
    Reason.GANG_INCOMPLETE: "Create the rest of its pods, or run it with fewer; events of their"
    " owner say whether a ResourceQuota or webhook refuses them.",
    Reason.INSUFFICIENT_GPU: "It starts when GPUs become free; a smaller request fits sooner.",
    Reason.INSUFFICIENT_NODE_RESOURCES: "Lower the CPU or memory requests of the pod.",
    Reason.NO_MATCHING_NODE: "Compare its node selector, affinity, tolerations and GPU model with"
    " the nodes.",
    Reason.NO_TOPOLOGY_DOMAIN: "It starts when a domain has room; a wider level has room sooner.",
    Reason.POD_AFFINITY_UNMET: "Check the required pod affinity terms of this pod and of those that"
    " run there.",
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: "Make the work preemptible, or ask for a larger quota.",
    Reason.OVER_FAIR_SHARE: "It starts when work of the project ends, or when others leave GPUs"
    " idle.",
    Reason.OVER_LIMIT: "It starts when work under the same limit ends; an administrator can raise"
    " the limit.",
    Reason.OVER_BUDGET: "It starts when it fits within the quota, or in the next month; an"
    " administrator can raise gpuHoursPerMonth.",
    Reason.UNKNOWN_NODE_POOL: "Name a node pool that exists (kubectl get gpunodepools).",
    Reason.UNKNOWN_PROJECT: "Name a project that lists this namespace (kubectl get gpuprojects).",
    Reason.UNKNOWN_TOPOLOGY: "Name a topology and a level that exist (kubectl get gputopologies).",
    Reason.GANG_SIZE_UNKNOWN: "State the size on the pods, or in a GpuPodGroup.",
    Reason.PRIORITY_CLASS_NOT_ALLOWED: "Name a priority class that the project allows.",
    Reason.INVALID_REQUEST: "Create the pod again with a request that is accepted.",
    Reason.HELD_BY_OTHER_GATE: "The controller of that scheduling gate must remove it.",
    Reason.HELD_BY_OWNER: "Resume it with kubectl ballast resume; it has kept its age.",
    Reason.WAITING_FOR_VICTIMS: "Its GPUs are reserved; it starts when those pods have ended.",
    Reason.WAITING_FOR_TURN: "It is tried again in every cycle.",
    Reason.PLACEMENT_REFUSED: "See why kube-scheduler refuses it; Ballast plans it again.",
    Reason.RELEASE_REFUSED: "See which admission policy or webhook refuses it, or changes the pod.",
    Reason.CLAIMS_NOT_MET: "Check its volumes: kubectl get pvc.",
    Reason.SCHEDULER_AWAY: "Check Ballast's kube-scheduler; no pod has to be created again.",
}


def sentence(reason: Reason) -> str:
    """The constant text for `reason`: the word, then its sentence."""
    return f"{reason}: {SENTENCES[reason]}"


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A refusal as a value.

    `detail` names the object and what it has and needs; it is not used where the text must be
    constant.
    """

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail or SENTENCES[self.reason]}"
