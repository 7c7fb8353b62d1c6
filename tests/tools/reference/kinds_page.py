"""docs/reference/kinds.md: all fields of our kinds, from the schemas of their CRDs."""

from collections.abc import Iterator
from typing import Any

from extender.api.crd import DEFINITIONS, Definition
from extender.api.schema import schema

INTRO = """# Kinds

Group `ballast.dev`, version `v1alpha1`. Examples and the rules behind the fields are in
[objects](../objects.md); `kubectl explain` prints the same texts.
"""


def page() -> str:
    """The page's text."""
    return INTRO + "".join(_section(each) for each in DEFINITIONS)


def _section(definition: Definition) -> str:
    body = schema(definition.kind)
    scope = "Namespaced" if definition.is_namespaced else "Cluster-wide"
    lines = [
        f"\n## {definition.kind.__name__}\n",
        f"{body['description']} {scope}; `kubectl get {definition.plural}.ballast.dev`, short name"
        f" `{', '.join(definition.short_names)}`.\n",
        "| field | type | default | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{path}` | {_type_of(field)} | {_default_of(field)} | {_cell(field)} |"
            for path, field in _fields(body)
        ),
    ]
    return "\n".join(lines) + "\n"


def _fields(body: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All fields below spec and status with their paths, parents first."""
    for name, field in body.get("properties", {}).items():
        if not path and name not in ("spec", "status"):
            continue
        below = f"{path}.{name}" if path else name
        yield below, field
        items = field.get("items", {})
        values = field.get("additionalProperties", {})
        yield from _fields(field, below)
        if isinstance(items, dict):
            yield from _fields(items, f"{below}[]")
        if isinstance(values, dict):
            yield from _fields(values, f"{below}.*")


def _type_of(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{each}`" for each in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "number or string"
    kind: str = field.get("type", "any")
    if kind == "array":
        return f"list of {_type_of(field.get('items', {}))}s"
    return field.get("format", kind) if kind == "string" else kind


def _default_of(field: dict[str, Any]) -> str:
    default = field.get("default")
    return "" if default in (None, {}, [], "") else f"`{default}`"


def _cell(field: dict[str, Any]) -> str:
    return str(field.get("description", "")).replace("|", "\\|").replace("\n", " ")
