"""The OpenAPI v3 document of the aggregated API, which `kubectl explain` reads.

kube-apiserver requests the index, and passes requests for the document on. Its format is that of
kube-apiserver's own documents (kubectl `pkg/explain/v2/templates/plaintext.tmpl` reads it).
"""

import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Final

import msgspec

from extender.view.answers import (
    API_VERSION,
    GROUP,
    VERSION,
    Explanation,
    QueueFigures,
    Simulation,
    SnapshotOfCluster,
    Waiting,
)

Json = dict[str, Any]
#: Kind -> its fields; of a kind that is only listed, those of one item.
KINDS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "Explanation": Explanation,
    "Queue": Waiting,
    "Share": QueueFigures,
    "Simulation": Simulation,
    "Snapshot": SnapshotOfCluster,
}
INDEX_PATH: Final = "/openapi/v3"
DOCUMENT_PATH: Final = f"{INDEX_PATH}/apis/{API_VERSION}"
_GROUP_VERSION_KIND: Final = "x-kubernetes-group-version-kind"
#: A field in a docstring, as Python names it.
_FIELD: Final = re.compile(r"`[a-z]+(_[a-z]+)+`")
_NULL: Final = {"type": "null"}


def index() -> Json:
    """The list of documents."""
    return {"paths": {f"apis/{API_VERSION}": {"serverRelativeURL": DOCUMENT_PATH}}}


def document(resources: Mapping[str, str]) -> Json:
    """The document; `resources` are the kinds by the paths of their resources below the version."""
    refs, schemas = msgspec.json.schema_components(
        KINDS.values(), ref_template="#/components/schemas/{name}"
    )
    schemas = {name: _of_openapi(schema) for name, schema in schemas.items()}
    for kind, ref in zip(KINDS, refs, strict=True):
        schemas[ref["$ref"].rpartition("/")[2]][_GROUP_VERSION_KIND] = [_named(kind)]
    paths = {
        f"/apis/{API_VERSION}/{path}": {"get": {_GROUP_VERSION_KIND: _named(kind)}}
        for path, kind in resources.items()
    }
    info = {"title": GROUP, "version": VERSION}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _named(kind: str) -> Json:
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _of_openapi(node: Any) -> Any:
    """A node of a JSON schema as OpenAPI 3.0 has it: null is no type, and an enum has a type."""
    if isinstance(node, list):
        return [_of_openapi(each) for each in node]
    if not isinstance(node, dict):
        return node
    options = [each for each in node.get("anyOf", ()) if each != _NULL]
    if len(options) == 1:
        return _of_openapi(options[0])
    found = {key: _of_openapi(value) for key, value in node.items() if key != "title"}
    if "enum" in found:
        found["type"] = "string"
    if isinstance(text := found.get("description"), str):
        paragraphs = (" ".join(each.split()) for each in cleandoc(text).split("\n\n"))
        found["description"] = _FIELD.sub(_as_in_yaml, "\n\n".join(paragraphs))
    return found


def _as_in_yaml(field: re.Match[str]) -> str:
    first, *others = field[0].strip("`").split("_")
    return f"`{first}{''.join(each.title() for each in others)}`"
