"""What a pod asks for by ResourceClaims: whole cards or a share of one; and claims that are not
understood."""

import asyncio
import copy
from typing import Any

import jsonpatch
import msgspec
import pytest

from extender.api import names
from extender.api.objects import Pod
from tests.support.admission import PodDocument, pod, request_for, usual_index
from webhooks.claims import CLAIM, CLASS, MAX_CLAIMS, TEMPLATE, names_claims, take_claims
from webhooks.mutate import judge, read_pod
from webhooks.owners.origin import NO_OWNER, Owner
from webhooks.owners.trace import Asked, Read

GATE = {"name": names.GATE}
CHANNEL = "compute-domain-default-channel.nvidia.com"
#: The DeviceClasses that NVIDIA's driver installs, without our label.
OF_NVIDIA = (
    "gpu.nvidia.com",
    "mig.nvidia.com",
    "vfio.gpu.nvidia.com",
    CHANNEL,
    "compute-domain-daemon.nvidia.com",
)


def request(device_class: str = "cards", **exactly: Any) -> dict[str, Any]:
    exact = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    return {"name": "r", "exactly": exact | exactly}


def share(memory: str, device_class: str = "cards") -> dict[str, Any]:
    return request(device_class, capacity={"requests": {"memory": memory}})


def claims(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return {"devices": {"requests": list(requests), **devices}}


def reader(
    templates: dict[str, Any] | None = None,
    direct: dict[str, Any] | None = None,
) -> Read:
    """What the API server has: classes of cards and of other devices, and one without a label."""
    known: dict[tuple[str, str], dict[str, Any]] = {
        (CLASS.kind, "cards"): {"metadata": _labelled("gpu.example.com")},
        (CLASS.kind, "nics"): {"metadata": _labelled("none")},
        (CLASS.kind, "unknown"): {"metadata": {"name": "unknown"}},
    }
    for name in OF_NVIDIA:
        known[CLASS.kind, name] = {"metadata": {"name": name}}
    for name, spec in (templates or {}).items():
        known[TEMPLATE.kind, name] = {"metadata": {"name": name}, "spec": {"spec": spec}}
    for name, body in (direct or {}).items():
        known[CLAIM.kind, name] = {"metadata": {"name": name}, **body}

    async def read(asked: Asked) -> Owner | None:
        body = known.get((asked.kind.kind, asked.name))
        return msgspec.convert(body, type=asked.kind.document) if body else None

    return read


def _labelled(driver: str) -> dict[str, Any]:
    return {"name": "class", "labels": {names.LABEL_CARDS_OF: driver}}


def claiming(*names_of_templates: str, direct: str = "") -> PodDocument:
    listed = [
        {"name": f"c{ix}", "resourceClaimTemplateName": name}
        for ix, name in enumerate(names_of_templates)
    ]
    if direct:
        listed.append({"name": "direct", "resourceClaimName": direct})
    return pod().with_spec(resourceClaims=listed)


def read(built: PodDocument) -> Pod:
    found = read_pod(request_for(built))
    assert isinstance(found, Pod)
    return found


def stored(built: PodDocument, reading: Read) -> dict[str, Any]:
    """The pod as it is created."""
    found = read(built)
    why = asyncio.run(take_claims(found, reading))
    assert why is None, why
    decision = judge(found, request_for(built), usual_index(), NO_OWNER)
    assert decision.is_allowed, decision.message
    after: dict[str, Any] = jsonpatch.apply_patch(copy.deepcopy(built.body), list(decision.ops))
    return after


def refusal(built: PodDocument, reading: Read | None) -> str:
    why = asyncio.run(take_claims(read(built), reading))
    assert why is not None
    return why.detail


def milli(after: dict[str, Any]) -> str:
    return str(after["spec"]["containers"][0]["resources"]["requests"].get(names.GPU_MILLI))


@pytest.mark.parametrize("device_class", ["cards", "gpu.nvidia.com"])
def test_pod_asks_in_milli_for_the_cards_of_its_claims_and_is_gated(device_class: str) -> None:
    spec = claims(request(device_class, count=2), request(device_class))
    after = stored(claiming("two-and-one"), reader({"two-and-one": spec}))
    assert milli(after) == "3000"
    assert after["spec"]["schedulingGates"] == [GATE]
    assert after["spec"]["schedulerName"] == names.SCHEDULER_NAME


def test_every_claim_of_the_pod_counts_and_one_that_is_named_twice_counts_once() -> None:
    built = claiming("one", "one", direct="mine")
    built.body["spec"]["resourceClaims"].append({"name": "again", "resourceClaimName": "mine"})
    one = claims(request())
    assert milli(stored(built, reader({"one": one}, {"mine": {"spec": one}}))) == "3000"


def test_webhook_that_is_called_again_finds_what_it_wrote() -> None:
    reading = reader({"one": claims(request())})
    again = claiming("one")
    again.body = stored(claiming("one"), reading)
    assert stored(again, reading) == again.body


@pytest.mark.parametrize("device_class", ["cards", "gpu.nvidia.com"])
def test_pod_asks_in_mib_for_the_memory_of_a_card_that_its_claim_asks_for(
    device_class: str,
) -> None:
    reading = reader({"ten": claims(share("10Gi", device_class)), "nic": claims(request("nics"))})
    after = stored(claiming("nic", "ten"), reading)
    notes = after["metadata"]["annotations"]
    assert (notes[names.ANNOTATION_MEMORY], milli(after)) == ("10240", "1")
    assert notes[names.ANNOTATION_MEMORY_BY] == names.BY_CLAIM
    assert after["spec"]["schedulingGates"] == [GATE]
    again = claiming()
    again.body = after
    assert stored(again, reading) == after


def test_pod_with_a_share_by_claim_does_not_need_the_plugin_of_the_node_agent() -> None:
    reading, built = reader({"ten": claims(share("10Gi"))}), claiming("ten")
    found = read(built)
    assert asyncio.run(take_claims(found, reading)) is None
    decision = judge(found, request_for(built), usual_index(), NO_OWNER, "plugin")
    assert "required-plugins" not in str(decision.ops)


def test_claim_for_devices_that_are_no_cards_leaves_the_pod_as_it_is() -> None:
    after = stored(claiming("nic"), reader({"nic": claims(request("nics"))}))
    assert "schedulingGates" not in after["spec"]


def test_whole_cards_beside_a_channel_of_their_compute_domain_are_whole_cards() -> None:
    built = claiming("channel").asking("nvidia.com/gpu", "4")
    assert milli(stored(built, reader({"channel": claims(request(CHANNEL))}))) == "4000"


def test_share_of_a_card_beside_a_claim_for_another_device_is_a_share() -> None:
    built = claiming("nic").noted({names.ANNOTATION_FRACTION: "0.5"})
    assert milli(stored(built, reader({"nic": claims(request("nics"))}))) == "500"


REFUSED = {
    "firstAvailable": (
        {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "cards"}]},
        "has alternatives",
    ),
    "all": (request(allocationMode="All"), "allocationMode All"),
    "admin": (request(adminAccess=True), "adminAccess"),
    "selectors": (request(selectors=[{"cel": {"expression": "true"}}]), "selectors"),
    "other capacity": (request(capacity={"requests": {"cores": "10"}}), "only memory is supported"),
    "two shares": (request(count=2, capacity={"requests": {"memory": "1Gi"}}), "of one card"),
    "no memory": (request(capacity={"requests": {"memory": "0"}}), "such as 10240Mi"),
    "odd memory": (request(capacity={"requests": {"memory": "10G"}}), "a whole number of MiB"),
    "class without label": (
        request("unknown"),
        "an administrator must label it ballast.dev/cards-of",
    ),
    "MIG instances": (request("mig.nvidia.com"), "the resource nvidia.com/mig-1g.10gb"),
    "cards of virtual machines": (request("vfio.gpu.nvidia.com"), "does not support"),
    "no class": (request("absent"), "there is no DeviceClass absent"),
}


@pytest.mark.parametrize("others", [(request(),), (share("1Gi"),)])
def test_share_and_other_cards_in_one_pod_are_refused(others: Any) -> None:
    reading = reader({"t": claims(share("10Gi"), *others)})
    assert "request one share" in refusal(claiming("t"), reading)
    reading = reader({"t": claims(share("10Gi")), "u": claims(*others)})
    assert "request one share" in refusal(claiming("t", "u"), reading)


@pytest.mark.parametrize(
    "notes", [{"gpu-memory": "4096"}, {names.ANNOTATION_FRACTION: "0.5"}, {"gpu-fraction": "0.5"}]
)
def test_share_that_is_asked_for_in_another_way_as_well_is_refused(notes: Any) -> None:
    reading = reader({"ten": claims(share("10Gi"))})
    assert "use only one" in refusal(claiming("ten").noted(notes), reading)


def test_annotation_of_a_share_by_claims_without_one_is_refused() -> None:
    built = claiming("nic").noted({names.ANNOTATION_MEMORY_BY: "claim", "gpu-memory": "10240"})
    assert "leave ballast.dev/gpu-memory-by out" in refusal(
        built, reader({"nic": claims(request("nics"))})
    )


@pytest.mark.parametrize(("asked", "said"), REFUSED.values(), ids=REFUSED)
def test_claim_that_is_not_understood_is_refused(asked: dict[str, Any], said: str) -> None:
    assert said in refusal(claiming("t"), reader({"t": claims(asked)}))


def test_constraints_between_devices_are_refused() -> None:
    spec = claims(request(count=2), constraints=[{"matchAttribute": "a/b"}])
    assert "constraints" in refusal(claiming("t"), reader({"t": spec}))


@pytest.mark.parametrize("reading", [reader(), None])
def test_template_that_cannot_be_read_is_to_be_created_before_the_pod(reading: Any) -> None:
    assert "create it before its pods" in refusal(claiming("absent"), reading)


def test_claim_that_another_pod_uses_is_refused() -> None:
    users = [{"resource": "pods", "name": "first", "uid": "u"}]
    body = {"spec": claims(request()), "status": {"reservedFor": users}}
    said = refusal(claiming(direct="shared"), reader(direct={"shared": body}))
    assert "in use by first" in said
    assert "ResourceClaimTemplate" in said


def test_claim_without_cards_may_be_used_by_several_pods() -> None:
    users = [{"resource": "pods", "name": "first", "uid": "u"}]
    body = {"spec": claims(request("nics")), "status": {"reservedFor": users}}
    built = claiming(direct="shared").asking("nvidia.com/gpu", "1")
    assert milli(stored(built, reader(direct={"shared": body}))) == "1000"


def test_cards_asked_for_in_two_ways_are_refused() -> None:
    built = claiming("one").asking("nvidia.com/gpu", "1")
    assert "use only one" in refusal(built, reader({"one": claims(request())}))


def test_milli_that_say_something_else_than_the_claims_are_refused() -> None:
    built = claiming("one").asking(names.GPU_MILLI, "2000")
    assert "leave the latter out" in refusal(built, reader({"one": claims(request())}))
    built = claiming("nic").asking(names.GPU_MILLI, "1000")
    assert "leave the latter out" in refusal(built, reader({"nic": claims(request("nics"))}))


def test_more_claims_than_are_read_are_refused() -> None:
    reading = reader({"one": claims(request())})
    most = claiming(*["one"] * MAX_CLAIMS)
    assert milli(stored(most, reading)) == f"{MAX_CLAIMS}000"
    said = refusal(claiming(*["one"] * (MAX_CLAIMS + 1)), reading)
    assert f"has {MAX_CLAIMS + 1} claims; {MAX_CLAIMS} are read" in said


@pytest.mark.parametrize("asked", [request(), share("10Gi")], ids=["card", "share"])
def test_claims_for_cards_of_a_daemon_sets_pod_are_refused(asked: dict[str, Any]) -> None:
    built = claiming("t").owned_by("DaemonSet")
    found = read(built)
    assert asyncio.run(take_claims(found, reader({"t": claims(asked)}))) is None
    decision = judge(found, request_for(built), usual_index(), NO_OWNER)
    assert not decision.is_allowed
    assert "a pod of a DaemonSet can't ask for GPUs by claims" in decision.message


def test_claims_of_pods_outside_projects_are_not_read() -> None:
    index = usual_index()
    found = read(claiming("one"))
    assert names_claims(found, index)
    found.metadata.namespace = "elsewhere"
    assert not names_claims(found, index)
