"""DeviceClasses, ResourceSlices and claims of dynamic resource allocation, as drivers and users
write them."""

from typing import Any

from extender.api import names

API = "resource.k8s.io/v1"
PATH = f"/apis/{API}"
DRIVER = "gpu.example.com"
Manifest = dict[str, Any]


def device_class(name: str = DRIVER, *, cards_of: str = DRIVER, mapped: str = "") -> Manifest:
    """The class of all devices of the driver; `mapped` is its extended resource."""
    expression = f"device.driver == '{DRIVER}'"
    spec: Manifest = {"selectors": [{"cel": {"expression": expression}}]}
    if mapped:
        spec["extendedResourceName"] = mapped
    labels = {names.LABEL_CARDS_OF: cards_of} if cards_of else {}
    return _object("DeviceClass", {"name": name, "labels": labels}, spec)


#: Amounts of memory that a card gives to one claim.
STEPS: Manifest = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}


def resource_slice(
    node: str, n_cards: int, *, is_shared: bool = False, is_reversed: bool = False
) -> Manifest:
    """The driver's ResourceSlice for the node: cards of 80 GiB, which claims may share.

    With `is_reversed`, the last card is listed first.
    """
    memory: Manifest = {"value": "80Gi"} | ({"requestPolicy": STEPS} if is_shared else {})
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": f"gpu-{ix}",
                "attributes": {"model": {"string": "LATEST-GPU-MODEL"}},
                "capacity": {"memory": memory},
                **({"allowMultipleAllocations": True} if is_shared else {}),
            }
            for ix in sorted(range(n_cards), reverse=is_reversed)
        ],
    }
    return _object("ResourceSlice", {"name": f"{node}-{DRIVER}"}, spec)


def sharing_policy(n_devices: int) -> list[Manifest]:
    """An admission policy that makes the devices of slices with `n_devices` shareable, for a driver
    that does not."""
    path = '"/spec/devices/" + string(i) + "/allowMultipleAllocations"'
    patch = f'JSONPatch{{op: "add", path: {path}, value: true}}'
    spec = {
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["resource.k8s.io"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["resourceslices"],
                }
            ]
        },
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": f"{list(range(n_devices))}.map(i, {patch})"},
            }
        ],
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    metadata = {"metadata": {"name": "share.example.com"}}
    bound = {"spec": {"policyName": "share.example.com"}}
    return [
        api | {"kind": "MutatingAdmissionPolicy"} | metadata | {"spec": spec},
        api | {"kind": "MutatingAdmissionPolicyBinding"} | metadata | bound,
    ]


def template(name: str, n_cards: int, **exactly: Any) -> Manifest:
    """A ResourceClaimTemplate for whole cards."""
    return _object(
        "ResourceClaimTemplate", {"name": name}, {"spec": claim_spec(n_cards, **exactly)}
    )


def share_template(name: str, memory: str) -> Manifest:
    """A ResourceClaimTemplate for memory of one card."""
    return template(name, 1, capacity={"requests": {"memory": memory}})


def claim(name: str, n_cards: int, **exactly: Any) -> Manifest:
    """A ResourceClaim without a template."""
    return _object("ResourceClaim", {"name": name}, claim_spec(n_cards, **exactly))


def claim_spec(n_cards: int, **exactly: Any) -> Manifest:
    """A claim spec with one request for devices of the class."""
    exact = {"deviceClassName": DRIVER, "count": n_cards, **exactly}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exact}]}}


def pod(name: str, *, of_template: str = "", of_claim: str = "", n_resource: int = 0) -> Manifest:
    """A pod as a user writes it, without labels or annotations of Ballast."""
    source = {"resourceClaimTemplateName": of_template} if of_template else {}
    source = {"resourceClaimName": of_claim} if of_claim else source
    resources: Manifest = {"requests": {"cpu": "100m"}}
    if source:
        resources["claims"] = [{"name": "gpus"}]
    if n_resource:
        resources["limits"] = {names.NVIDIA_GPU: str(n_resource)}
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "example", "resources": resources}],
    }
    if source:
        spec["resourceClaims"] = [{"name": "gpus", **source}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _object(kind: str, metadata: Manifest, spec: Manifest) -> Manifest:
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
