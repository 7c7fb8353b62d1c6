"""Pods and pod groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from msgspec.structs import replace

from extender.api import names
from extender.api.demand import DEVICES, FRACTION, MEMORY, MODEL_SELECTOR
from extender.api.kinds import (
    GpuPodGroup,
    GpuPodGroupSpec,
    GpuPodGroupStatus,
    RestartPolicy,
    SubGroup,
    TopologyConstraint,
)
from extender.api.objects import (
    Affinity,
    Condition,
    Container,
    LabelSelector,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    Quantity,
    Resources,
    SchedulingGate,
    Toleration,
)
from extender.api.units import MILLI_PER_GPU, format_gpus
from tests.support.builders.metadata import Builder, at_s

JOB = OwnerReference(api_version="batch/v1", kind="Job", name="job", uid="uid-job", controller=True)


class PodBuilder(Builder):
    """A gated pod of namespace `team-a` with a controller and without requests."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "team-a")
        self._spec = PodSpec(
            scheduler_name=names.SCHEDULER_NAME,
            priority=names.PRIORITY_CLASSES["ballast-training"],
            scheduling_gates=[SchedulingGate(names.GATE)],
        )
        self._status = PodStatus(phase="Pending")
        self._requests: dict[str, Quantity] = {}
        self._owners = [JOB]
        self._has_cards = True

    def of(self, namespace: str) -> Self:
        self._meta = replace(self._meta, namespace=namespace)
        return self

    def needs(self, milli: int, *, devices: int = 1) -> Self:
        """Requests a fraction of each of `devices` cards; a multiple of 1000: whole cards."""
        if milli % MILLI_PER_GPU == 0:
            self._requests[names.NVIDIA_GPU] = milli // MILLI_PER_GPU * devices
        else:
            self.notes({FRACTION: format_gpus(milli)})
            if devices > 1:
                self.notes({DEVICES: str(devices)})
        self._requests[names.GPU_MILLI] = milli * devices
        return self

    def claims(self, n_cards: int) -> Self:
        """Requests whole cards by a ResourceClaim; the pod is as after admission."""
        claim = PodResourceClaim(name="gpus", resource_claim_template_name="gpus")
        self._spec = replace(self._spec, resource_claims=[claim])
        self._requests[names.GPU_MILLI] = MILLI_PER_GPU * n_cards
        return self

    def claims_mib(self, mib: int) -> Self:
        """Requests a share of a card by a ResourceClaim; the pod is as after admission."""
        self.claims(1).needs_mib(mib)
        return self.notes({names.ANNOTATION_MEMORY_BY: names.BY_CLAIM})

    def needs_mib(self, mib: int, *, devices: int = 1) -> Self:
        self.notes({MEMORY: str(mib)})
        if devices > 1:
            self.notes({DEVICES: str(devices)})
        self._requests[names.GPU_MILLI] = 1
        return self

    def host(self, cpu: Quantity, memory: Quantity) -> Self:
        self._requests.update(cpu=cpu, memory=memory)
        return self

    def instances(self, resource: str, count: int) -> Self:
        """Requests MIG instances of one profile."""
        self._requests[resource] = count
        return self

    def user(self, name: str) -> Self:
        return self.labels({names.LABEL_USER: name})

    def sub_group(self, name: str) -> Self:
        return self.labels({names.LABEL_SUB_GROUP: name})

    def beside(self, topology_key: str, **labels: str) -> Self:
        """Requires affinity to pods with these labels."""
        affinity = self._spec.affinity or Affinity()
        self._spec = replace(
            self._spec, affinity=replace(affinity, pod_affinity=_to_pods(topology_key, labels))
        )
        return self

    def apart(self, topology_key: str, **labels: str) -> Self:
        """Requires anti-affinity to pods with these labels."""
        affinity = self._spec.affinity or Affinity()
        self._spec = replace(
            self._spec,
            affinity=replace(affinity, pod_anti_affinity=_to_pods(topology_key, labels)),
        )
        return self

    def gang(self, name: str, min_member: int = 0) -> Self:
        self.labels({names.LABEL_POD_GROUP: name})
        return self.notes({names.ANNOTATION_MIN_MEMBER: str(min_member)}) if min_member else self

    def project(self, name: str) -> Self:
        return self.labels({names.LABEL_PROJECT: name})

    def kind(self, kind: str) -> Self:
        """Sets the workload kind and its priority class."""
        priority_class = names.CLASS_OF_KIND[kind]
        self.labels({names.LABEL_WORKLOAD_KIND: kind})
        return self.priority(names.PRIORITY_CLASSES[priority_class])

    def priority(self, priority: int) -> Self:
        self._spec = replace(self._spec, priority=priority)
        return self

    def preemption_policy(self, policy: str) -> Self:
        self._spec = replace(self._spec, preemption_policy=policy)
        return self

    def preemptibility(self, word: str) -> Self:
        return self.labels({names.LABEL_PREEMPTIBILITY: word})

    def pools(self, *pools: str) -> Self:
        return self.notes({names.ANNOTATION_NODE_POOLS: ",".join(pools)})

    def models(self, *models: str) -> Self:
        return self.notes({MODEL_SELECTOR: ",".join(models)})

    def on_nodes(self, **labels: str) -> Self:
        self._spec = replace(self._spec, node_selector=labels)
        return self

    def tolerates(self, key: str, effect: str = "") -> Self:
        tolerations = [*(self._spec.tolerations or ()), Toleration(key, "Exists", "", effect)]
        self._spec = replace(self._spec, tolerations=tolerations)
        return self

    def scheduler(self, name: str) -> Self:
        """Sets another scheduler and removes the gate."""
        self._spec = replace(self._spec, scheduler_name=name, scheduling_gates=None)
        return self

    def direct(self) -> Self:
        """Removes the gate, without a plan."""
        self._spec = replace(self._spec, scheduling_gates=None)
        return self

    def released(self, node: str, epoch: int = 1) -> Self:
        """As after the controller has removed the gate."""
        return self.direct().notes({names.ANNOTATION_PLAN: f"{epoch} {node}"})

    def bound(self, node: str, *, started: int = 0) -> Self:
        """As after our Binding: on the node, with the cards that it requests."""
        self._spec = replace(self._spec, scheduling_gates=None, node_name=node)
        if started:
            self._status = replace(self._status, phase="Running", start_time=at_s(started))
        return self

    def unledgered(self) -> Self:
        """As bound by another scheduler: without a cards annotation."""
        self._has_cards = False
        return self

    def mirror(self) -> Self:
        """As the mirror pod of a static pod."""
        return self.notes({names.ANNOTATION_MIRROR: "hash"})

    def ended(self, phase: Literal["Succeeded", "Failed"] = "Succeeded") -> Self:
        self._status = replace(self._status, phase=phase)
        return self

    def grace(self, seconds: int) -> Self:
        """Sets the termination grace period."""
        self._spec = replace(self._spec, termination_grace_period_seconds=seconds)
        return self

    def restarts(self, policy: RestartPolicy) -> Self:
        """Sets the restart policy."""
        self._spec = replace(self._spec, restart_policy=policy)
        return self

    def terminating(self, since: int = 2_000) -> Self:
        self._meta = replace(self._meta, deletion_timestamp=at_s(since))
        return self

    def told(self, reason: str) -> Self:
        """Adds our condition that the pod is not placed, with this reason."""
        placed = Condition(type=names.CONDITION_PLACED, status="False", reason=reason)
        self._status = replace(self._status, conditions=[placed])
        return self

    def bare(self) -> Self:
        """Removes the owner."""
        self._owners = []
        return self

    def made_by(self, owner: str) -> Self:
        """Sets the UID of the controller."""
        self._owners = [replace(JOB, uid=owner)]
        return self

    def build(self) -> Pod:
        milli = int(self._requests.get(names.GPU_MILLI, 0))
        if self._spec.node_name and milli and self._has_cards:
            n_cards = max(1, milli // MILLI_PER_GPU)
            cards = ",".join(f"{ix}:{min(milli, MILLI_PER_GPU)}:1" for ix in range(n_cards))
            meta = self._meta.annotations or {}
            self.notes({names.ANNOTATION_CARDS: meta.get(names.ANNOTATION_CARDS, cards)})
        container = Container("main", Resources(requests=dict(self._requests)))
        return Pod(
            metadata=replace(self._meta, owner_references=list(self._owners)),
            spec=replace(self._spec, containers=[container]),
            status=self._status,
        )


def _to_pods(topology_key: str, labels: Mapping[str, str]) -> PodAffinity:
    selector = LabelSelector(match_labels=dict(labels))
    return PodAffinity([PodAffinityTerm(topology_key=topology_key, label_selector=selector)])


class PodGroupBuilder(Builder):
    """A pod group of namespace `team-a`."""

    def __init__(self, name: str, min_member: int) -> None:
        super().__init__(name, "team-a")
        self._meta = replace(self._meta, uid=f"uid-group-{name}")
        self._spec = GpuPodGroupSpec(min_member=min_member)
        self._status = GpuPodGroupStatus()

    def of(self, namespace: str) -> Self:
        self._meta = replace(self._meta, namespace=namespace)
        return self

    def project(self, name: str) -> Self:
        self._spec = replace(self._spec, project=name)
        return self

    def priority_class(self, name: str) -> Self:
        self._spec = replace(self._spec, priority_class_name=name)
        return self

    def preemptibility(self, word: Literal["", "Preemptible", "NonPreemptible"]) -> Self:
        self._spec = replace(self._spec, preemptibility=word)
        return self

    def pools(self, *pools: str) -> Self:
        self._spec = replace(self._spec, node_pools=list(pools))
        return self

    def sub_group(self, name: str, min_member: int = 1, **more: Any) -> Self:
        """Adds a sub-group; `more`: parent, min_sub_group, topology_constraint."""
        added = SubGroup(name=name, min_member=min_member, **more)
        self._spec = replace(self._spec, sub_groups=[*self._spec.sub_groups, added])
        return self

    def near(self, required: str = "", preferred: str = "", *, topology: str = "") -> Self:
        self._spec = replace(
            self._spec,
            topology_constraint=TopologyConstraint(
                topology=topology,
                required_topology_level=required,
                preferred_topology_level=preferred,
            ),
        )
        return self

    def delays(self, preemption_s: int = 0, staleness_s: int = 60) -> Self:
        self._spec = replace(
            self._spec, preemption_delay_seconds=preemption_s, staleness_grace_seconds=staleness_s
        )
        return self

    def made_for(self, *owners: str) -> Self:
        """As the controller creates a group for pods whose controllers have these UIDs."""
        self.labels({names.LABEL_MANAGED_BY: names.CONTROLLER_NAME})
        self.notes({names.ANNOTATION_MIN_MEMBER: str(self._spec.min_member)})
        references = [replace(JOB, uid=owner) for owner in owners]
        self._meta = replace(self._meta, owner_references=references, generation=1)
        return self

    def told_stale(self, since: str) -> Self:
        """With the condition `Stale` that an earlier leader wrote."""
        stale = Condition(type="Stale", status="True", last_transition_time=since)
        self._status = GpuPodGroupStatus(conditions=[stale])
        return self

    def build(self) -> GpuPodGroup:
        return GpuPodGroup(metadata=self._meta, spec=self._spec, status=self._status)


def pod(name: str) -> PodBuilder:
    """A gated pod of namespace `team-a`."""
    return PodBuilder(name)


def pod_group(name: str, min_member: int) -> PodGroupBuilder:
    """A pod group."""
    return PodGroupBuilder(name, min_member)
