"""GPUs that a pod requests by ResourceClaims (dynamic resource allocation).

If the claims of a project's pod request whole cards, the pod requests 1000 `ballast.dev/gpu-milli`
for each card, and so gets its gate and its quota like any GPU pod. If they request memory of a
card, the pod gets the annotations of a request for a share in MiB. An invalid claim is refused,
with what is accepted (`extender.api.claims`).
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from extender.api import names
from extender.api.aliases import first_of
from extender.api.claims import (
    ClaimedGpus,
    ClaimSpec,
    ClaimStatus,
    DeviceClass,
    DeviceClassSpec,
    classes_of_claim,
    gpus_of_claims,
)
from extender.api.demand import (
    GPU_ANNOTATIONS,
    MEMORY,
    pod_name,
    read_milli,
    read_plugin_cards,
    share_notes,
)
from extender.api.objects import Pod, PodResourceClaim
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU, UnitError
from webhooks.owners.origin import Owner
from webhooks.owners.table import OwnerKind
from webhooks.owners.trace import Asked, Read
from webhooks.projects import ProjectIndex
from webhooks.vocabulary import speaks

_VERSION: Final = "v1"
_GROUP: Final = "resource.k8s.io"
#: Claims read for one pod; a review has a second.
MAX_CLAIMS: Final = 8


class TemplateSpec(Struct):
    """The spec of the claims that are created from a template."""

    spec: ClaimSpec = field(default_factory=ClaimSpec)


class ClaimTemplate(Owner, kw_only=True):
    """A ResourceClaimTemplate."""

    spec: TemplateSpec = field(default_factory=TemplateSpec)


class Claim(Owner, kw_only=True):
    """A ResourceClaim."""

    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)


class ClassOfDevices(Owner, kw_only=True):
    """A DeviceClass."""

    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


#: Read by name; they own no pods, so they are not in `webhooks.owners.table`.
TEMPLATE: Final = OwnerKind(
    _GROUP, "ResourceClaimTemplate", None, _VERSION, "resourceclaimtemplates", ClaimTemplate
)
CLAIM: Final = OwnerKind(_GROUP, "ResourceClaim", None, _VERSION, "resourceclaims", Claim)
CLASS: Final = OwnerKind(_GROUP, "DeviceClass", None, _VERSION, "deviceclasses", ClassOfDevices)
READ: Final = (TEMPLATE, CLAIM, CLASS)


def names_claims(pod: Pod, projects: ProjectIndex) -> bool:
    """Whether `pod` belongs to a project and names ResourceClaims."""
    in_project = projects.project_of(pod.metadata.namespace) is not None
    return bool(pod.spec.resource_claims) and in_project


async def take_claims(pod: Pod, read: Read | None) -> Refused | None:
    """Translates the pod's claims into our requests, in `pod`.

    Refused, with `pod` unchanged, if a claim cannot be read or is invalid, or if the pod requests
    cards in another way as well.
    """
    try:
        listed = pod.spec.resource_claims or []
        if len(listed) > MAX_CLAIMS:
            raise UnitError(f"spec.resourceClaims has {len(listed)} claims; {MAX_CLAIMS} are read")
        claims = await _read_claims(pod, read)
        specs = [each.spec for each in claims]
        named = {name for spec in specs for name in classes_of_claim(spec)}
        classes = {name: await _read_class(name, read) for name in sorted(named)}
        for each in claims:
            _check_unused(each, classes)
        _ask(pod, gpus_of_claims(specs, classes))
    except UnitError as error:
        return Refused(Reason.INVALID_REQUEST, f"{pod_name(pod)}: spec.resourceClaims: {error}")
    return None


async def _read_claims(pod: Pod, read: Read | None) -> list[Claim]:
    """The pod's claims; one that it names twice is included once."""
    claims, seen = [], set()
    for each in pod.spec.resource_claims or ():
        if each.resource_claim_name and each.resource_claim_name in seen:
            continue
        seen.add(each.resource_claim_name)
        claims.append(await _read_claim(pod, each, read))
    return claims


async def _read_claim(pod: Pod, listed: PodResourceClaim, read: Read | None) -> Claim:
    """The claim, or the one that is created from the template."""
    namespace = pod.metadata.namespace
    if name := listed.resource_claim_template_name:
        template = await _read(TEMPLATE, namespace, name, read)
        if isinstance(template, ClaimTemplate):
            return Claim(metadata=template.metadata, spec=template.spec.spec)
    elif name := listed.resource_claim_name:
        claim = await _read(CLAIM, namespace, name, read)
        if isinstance(claim, Claim):
            return claim
    else:
        raise UnitError(
            f"{listed.name:.63} names neither a ResourceClaimTemplate nor a ResourceClaim; name one"
        )
    raise UnitError(f"{name:.253} is not there or could not be read; create it before its pods")


def _check_unused(claim: Claim, classes: Mapping[str, DeviceClass | None]) -> None:
    """Raise UnitError if another pod uses the cards of the claim."""
    if claim.status.reserved_for and gpus_of_claims([claim.spec], classes):
        raise UnitError(
            f"ResourceClaim {claim.metadata.name:.253} is in use by"
            f" {claim.status.reserved_for[0].name}; pods do not share cards by one claim: name a"
            " ResourceClaimTemplate"
        )


async def _read_class(name: str, read: Read | None) -> DeviceClass | None:
    found = await _read(CLASS, "", name, read)
    if not isinstance(found, ClassOfDevices):
        return None
    return DeviceClass(metadata=found.metadata, spec=found.spec)


async def _read(kind: OwnerKind, namespace: str, name: str, read: Read | None) -> Owner | None:
    return await read(Asked(kind, _VERSION, namespace, name, "", "")) if read else None


def _ask(pod: Pod, asked: ClaimedGpus) -> None:
    """Writes the requests of the claims into the pod; raises UnitError if it has others too."""
    notes = pod.metadata.annotations or {}
    if not asked.share_mib:
        if names.ANNOTATION_MEMORY_BY in notes:
            raise UnitError(f"they ask for no share; leave {names.ANNOTATION_MEMORY_BY} out")
        _ask_for_cards(pod, asked)
        return
    mib = str(asked.share_mib)
    others = {key for key in GPU_ANNOTATIONS if key in notes} - {MEMORY, names.ANNOTATION_MEMORY}
    stated = share_notes(pod.metadata).get(MEMORY, mib)
    if others or stated != mib or speaks(pod) or read_plugin_cards(pod):
        raise _two_ways(asked)
    pod.metadata.annotations = notes | {
        names.ANNOTATION_MEMORY: mib,
        names.ANNOTATION_MEMORY_BY: names.BY_CLAIM,
    }


def _ask_for_cards(pod: Pod, asked: ClaimedGpus) -> None:
    notes, stated, milli = (
        pod.metadata.annotations,
        read_milli(pod),
        asked.n_cards * MILLI_PER_GPU,
    )
    has_other = first_of(notes, GPU_ANNOTATIONS) or speaks(pod) or read_plugin_cards(pod)
    if asked and has_other:
        raise _two_ways(asked)
    if stated not in (0, milli) and not has_other:
        raise UnitError(
            f"the claims ask for {asked}, and {names.GPU_MILLI} is {stated}; leave the latter out"
        )
    if asked and not stated:
        resources = pod.spec.containers[0].resources
        resources.requests = (resources.requests or {}) | {names.GPU_MILLI: str(milli)}


def _two_ways(asked: ClaimedGpus) -> UnitError:
    return UnitError(
        f"the pod requests {asked} by ResourceClaims, and other GPUs by annotation or resource; use"
        " only one"
    )
