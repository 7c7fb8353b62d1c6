"""CRDs that stand for other projects' kinds: their objects may hold anything."""

from collections.abc import Sequence
from typing import Any


def open_definition(
    group: str,
    version: str,
    kind: str,
    plural: str,
    *,
    short: Sequence[str] = (),
    is_namespaced: bool = True,
) -> dict[str, Any]:
    """The definition of a kind without fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    named = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": list(short)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if is_namespaced else "Cluster",
            "names": named,
            "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
        },
    }
