"""The OpenAPI schema of a kind, from its Struct.

The Structs define the fields. The tables here add what only Kubernetes needs: list keys, bounds
(the API server estimates the cost of a CEL rule from the longest list that the schema admits), and
rules between fields.

Optional fields are absent, never null. Specs that users write have defaults, so that
`kubectl get -o yaml` shows what is in force. The ledger and statuses, which programs write, have
none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Final

import msgspec

from extender.api.explain import TEXTS
from extender.api.usage_kinds import HOURS

#: A decoded JSON schema, or a part of a manifest.
Json = dict[str, Any]

#: Struct -> the key of a list of it (`x-kubernetes-list-map-keys`).
LIST_KEYS: Final[Mapping[str, str | Sequence[str]]] = {
    "CardShare": "index",
    "Condition": "type",
    "Device": "index",
    "ForeignHold": "uid",
    "KindSelector": "workloadKind",
    "OverQuota": "nodePool",
    "PoolFigures": "name",
    "PoolUse": "name",
    "Row": "uid",
    "SubGroup": "name",
    "TopologyLevel": "nodeLabel",
    "UsageLine": ("user", "nodePool", "model"),
}
#: Struct -> length of the longest list of it. A kubelet runs 110 pods by default, some hundreds at
#: most.
MAX_ITEMS: Final = {
    "CardShare": 64,
    "Condition": 16,
    "Device": 64,
    "ForeignHold": 64,
    "KindSelector": 4,
    "OverQuota": 64,
    "PoolFigures": 64,
    "PoolUse": 64,
    "Row": 1024,
    "SubGroup": 64,
    "TopologyLevel": 16,
    "UsageLine": 1024,
}
#: Structs that get no default, since their absence has a meaning.
ABSENT: Final = ("", "HostFigures")
#: Kinds that only programs write.
MACHINE_WRITTEN: Final = ("GpuNode", "GpuUsage")
#: Length of the longest list of strings.
MAX_STRINGS: Final = 256
MAX_LABELS: Final = 32
MAX_TEXT: Final = 253
#: Of Kubernetes.
MAX_LABEL_VALUE: Final = 63
#: Marks a field with a number or a string; an admission policy checks its value.
ANY_VALUE: Final = "x-kubernetes-preserve-unknown-fields"
#: Field -> longest text, as in Kubernetes' own conditions.
MAX_TEXT_OF: Final = {"message": 32768, "reason": 1024}
#: Lists of names, which have a stricter form than other strings.
ITEM_SCHEMAS: Final[Mapping[str, Json]] = {
    "namespaces": {"maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
}


#: (Struct, field) -> further requirements on its value; Condition as in Kubernetes.
FORMS: Final[Mapping[tuple[str, str], Json]] = {
    ("Condition", "status"): {"enum": ["True", "False", "Unknown"]},
    ("Condition", "observedGeneration"): {"minimum": 0},
    ("Condition", "lastTransitionTime"): {"format": "date-time"},
    ("GpuProjectSpec", "department"): {"maxLength": MAX_LABEL_VALUE},
    ("GpuUsageSpec", "day"): {"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    ("OverQuota", "held"): {"minItems": HOURS, "maxItems": HOURS},
    ("UsageLine", "held"): {"minItems": HOURS, "maxItems": HOURS},
    ("UsageLine", "lost"): {"minItems": HOURS, "maxItems": HOURS},
}


@dataclass(slots=True, frozen=True)
class CelRule:
    """A CEL rule on a Struct, and the error message for the user."""

    rule: str
    message: str
    path: str = ""

    def as_json(self) -> Json:
        """The rule as an entry of `x-kubernetes-validations`."""
        body = {"rule": self.rule, "message": self.message}
        return body | ({"fieldPath": self.path} if self.path else {})


_SHORT_NAME: Final = CelRule(
    f"self.metadata.name.size() <= {MAX_LABEL_VALUE}",
    f"name must have at most {MAX_LABEL_VALUE} characters: pods and nodes have it as a label value",
)
#: By kind or Struct.
RULES: Final[Mapping[str, Sequence[CelRule]]] = {
    "GpuDepartment": (_SHORT_NAME,),
    "GpuNodePool": (_SHORT_NAME,),
    "GpuProject": (_SHORT_NAME,),
    "GpuProjectSpec": (
        # The name of an object (RFC 1123), with each part between dots.
        CelRule(
            "self.department.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?"
            "(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
            "department must be the name of a GpuDepartment: a-z, 0-9 and '-', as in research",
            ".department",
        ),
    ),
    "GpuPodGroupSpec": (
        CelRule(
            "!has(self.maxConcurrentPods) || "
            "self.maxConcurrentPods >= (has(self.minMember) ? self.minMember : 1)",
            "maxConcurrentPods must be at least minMember, or the group could never start",
            ".maxConcurrentPods",
        ),
        CelRule(
            "!has(self.subGroups) || self.subGroups.all(g, !has(g.parent) || g.parent == '' || "
            "self.subGroups.exists(p, p.name == g.parent))",
            "parent must be the name of another sub-group",
            ".subGroups",
        ),
        CelRule(
            "!has(oldSelf.project) || oldSelf.project == '' || "
            "(has(self.project) && self.project == oldSelf.project)",
            "project cannot be changed: its pods are already counted; make a new GpuPodGroup",
            ".project",
        ),
    ),
}


def schema(kind: type[msgspec.Struct]) -> Json:
    """The structural schema of a kind: no references, a type at every node."""
    (_,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    found = components[kind.__name__]
    converters = {"spec": _Converter(components), "status": _Converter(components)}
    converters["spec"].has_defaults = kind.__name__ not in MACHINE_WRITTEN
    body: Json = {
        "type": "object",
        **_described(found),
        **_validations(kind.__name__),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **{
                part: converter.property(kind.__name__, part, found)
                for part, converter in converters.items()
                if part in found["properties"]
            },
        },
    }
    if "spec" in found["required"]:
        body["required"] = ["spec"]
    return body


def _validations(name: str) -> Json:
    """The CEL rules of a kind or Struct, if it has any."""
    rules = RULES.get(name)
    return {"x-kubernetes-validations": [rule.as_json() for rule in rules]} if rules else {}


class _Converter:
    """Converts the schema that msgspec makes of a Struct into one that the API server accepts."""

    def __init__(self, components: Mapping[str, Json]) -> None:
        self.components = components
        self.has_defaults = False

    def property(self, struct: str, field: str, found: Json) -> Json:
        """The structural form of one field of a Struct, with its description and default."""
        stated = found["properties"][field]
        body = self.convert(stated, field)
        if text := TEXTS.get(struct, {}).get(field):
            body = {"description": text} | body | {"description": text}
        body |= FORMS.get((struct, field), {})
        if self.has_defaults and field not in found.get("required", ()):
            body |= _default(stated, body)
        return body

    def convert(self, found: Json, field: str) -> Json:
        """The structural form of one node; `field` is the name of its field."""
        found = _without_null(found)
        if "$ref" in found:
            name: str = found["$ref"]
            target = self.components[name]
            body = self._object(target, name) | _validations(name)
            return _described(target) | _described(found) | body
        return _described(found) | self._body(found, field)

    def _body(self, found: Json, field: str) -> Json:
        if ANY_VALUE in found:
            return {ANY_VALUE: True}
        if "enum" in found:
            return {"type": "string", "enum": found["enum"]}
        convert_type = {
            "array": self._array,
            "object": lambda found, _: self._object(found, ""),
            "string": _string,
            "integer": _integer,
            "boolean": lambda *_: {"type": "boolean"},
        }
        return convert_type[found["type"]](found, field)

    def _array(self, found: Json, field: str) -> Json:
        items = self.convert(found["items"], field) | ITEM_SCHEMAS.get(field, {})
        name = found["items"].get("$ref", "")
        if name:
            keys = LIST_KEYS[name]
            keys = [keys] if isinstance(keys, str) else list(keys)
            kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        else:
            # Numbers may repeat in a list, names may not.
            is_figures = items.get("type") == "integer"
            kind = {"x-kubernetes-list-type": "atomic" if is_figures else "set"}
        longest = MAX_ITEMS.get(name, MAX_STRINGS)
        return {"type": "array", "maxItems": longest, **kind, "items": items}

    def _object(self, found: Json, name: str) -> Json:
        if "properties" not in found:
            values = self.convert(found.get("additionalProperties", {"type": "string"}), "")
            return {
                "type": "object",
                "maxProperties": MAX_LABELS,
                "additionalProperties": values,
            }
        body: Json = {
            "type": "object",
            "properties": {
                field: self.property(name, field, found) for field in found["properties"]
            },
        }
        if found.get("required"):
            body["required"] = list(found["required"])
        return body


def _default(stated: Json, body: Json) -> Json:
    """The default that the API server stores for an absent field.

    Empty lists, maps and strings get none: they mean the same as an absent field.
    """
    if "default" in stated:
        return {"default": stated["default"]} if stated["default"] not in ([], {}, "", None) else {}
    is_stated = any("default" in each for each in body.get("properties", {}).values())
    is_made = is_stated and stated.get("$ref", "") not in ABSENT
    return {"default": {}} if is_made else {}


def _kept(found: Json, *keys: str) -> Json:
    return {key: found[key] for key in keys if key in found}


def _string(found: Json, field: str) -> Json:
    longest = found.get("maxLength", MAX_TEXT_OF.get(field, MAX_TEXT))
    return {"type": "string", **_kept(found, "minLength", "pattern"), "maxLength": longest}


def _integer(found: Json, _field: str) -> Json:
    return {"type": "integer", "format": "int64", **_kept(found, "minimum", "maximum")}


def _without_null(found: Json) -> Json:
    """The node without null, if it is a union with null: an optional field is absent, not null."""
    options: list[Json] = [one for one in found.get("anyOf", ()) if one != {"type": "null"}]
    if len(options) == 1:
        return options[0] | _kept(found, "description")
    return found


def _described(found: Json) -> Json:
    """The description as one paragraph, followed by the default value."""
    text = " ".join(cleandoc(found.get("description", "")).split())
    default = found.get("default")
    if default and default != "0" and isinstance(default, str | int):
        text = f"{text} Defaults to {default}.".lstrip()
    return {"description": text} if text else {}
