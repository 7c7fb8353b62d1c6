"""The kind ProvisioningRequest, with the fields that the controller and an autoscaler use.

The CRD of Cluster Autoscaler has more fields. Tests with this one check that Ballast's objects are
stored as intended; they do not test the autoscaler.
"""

from typing import Any, Final

GROUP: Final = "autoscaling.x-k8s.io"
API: Final = f"/apis/{GROUP}/v1"

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_POD_SET: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["podTemplateRef", "count"],
    "properties": {
        "podTemplateRef": {"type": "object", "properties": {"name": _TEXT}},
        "count": {"type": "integer", "minimum": 1},
    },
}
_CONDITION: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "status"],
    "properties": dict.fromkeys(("type", "status", "reason", "message"), _TEXT),
}
DEFINITION: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"provisioningrequests.{GROUP}",
        # The API server requires this annotation for groups below k8s.io.
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": GROUP,
        "names": {
            "kind": "ProvisioningRequest",
            "listKind": "ProvisioningRequestList",
            "plural": "provisioningrequests",
            "singular": "provisioningrequest",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["provisioningClassName", "podSets"],
                                "properties": {
                                    "provisioningClassName": _TEXT,
                                    "podSets": {"type": "array", "items": _POD_SET},
                                },
                                "x-kubernetes-validations": [
                                    {"rule": "self == oldSelf", "message": "Value is immutable"}
                                ],
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "conditions": {"type": "array", "items": _CONDITION}
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}
