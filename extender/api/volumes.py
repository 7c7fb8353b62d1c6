"""Projections of PersistentVolumeClaims, PersistentVolumes and StorageClasses."""

from msgspec import Struct, field

from extender.api.objects import NodeSelector, NodeSelectorTerm, ObjectMeta

#: The provisioner of classes for volumes that are created manually, such as local disks.
NO_PROVISIONER = "kubernetes.io/no-provisioner"


class ClaimSpec(Struct, rename="camel", gc=False):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None


class ClaimStatus(Struct, gc=False):
    phase: str = ""


class PersistentVolumeClaim(Struct, gc=False):
    metadata: ObjectMeta
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)


class VolumeNodeAffinity(Struct, gc=False):
    required: NodeSelector | None = None


class VolumeSpec(Struct, rename="camel", gc=False):
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(Struct, gc=False):
    metadata: ObjectMeta
    spec: VolumeSpec = field(default_factory=VolumeSpec)


class StorageClass(Struct, rename="camel", gc=False):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[NodeSelectorTerm] | None = None
