"""The required form of foreign objects before they are converted.

A shape is written as a value of its kind: `{"spec": {"levels": [{"nodeLabel!": str}]}}` is an
object. Its `spec`, if present, is an object; `spec.levels`, if present, is a list of objects; and
each of these has the string `nodeLabel`. Fields that a shape does not name are not checked. As in
Kubernetes, null means absent.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from extender.convert.fields import Fields, Manifest

Shape = Any

_ACCEPTED: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
}
_META: Final[Shape] = {"name": str, "namespace": str, "labels": dict, "annotations": dict}
_TEMPLATE: Final[Shape] = {
    "metadata": {"labels": dict, "annotations": dict},
    "spec": {
        kind: [{"resources": {"requests": dict, "limits": dict}, "env": [{"name!": str}]}]
        for kind in ("initContainers", "containers")
    },
}
#: An object with a pod template at any of these places.
WORKLOAD: Final[Shape] = {
    "metadata": _META,
    "spec": {
        **_TEMPLATE["spec"],
        "template": _TEMPLATE,
        "jobTemplate": {"spec": {"template": _TEMPLATE}},
    },
}
#: The pod template of an object that is no workload of Kubernetes itself.
TEMPLATE: Final[Shape] = _TEMPLATE
#: A topology; KAI and Kueue use the same format.
TOPOLOGY: Final[Shape] = {"spec": {"levels": [{"nodeLabel!": str}]}}


def shaped(objects: Iterable[Manifest], shapes: Mapping[str, Shape]) -> Iterator[Manifest]:
    """The objects, checked against the shape of their kind, without nulls in its fields.

    Raises a ValueError that names the object and the field, and says what is accepted there.
    """
    for manifest in objects:
        read = _read(manifest, {"kind": str, "apiVersion": str, "metadata": _META}, "", "object")
        shape = shapes.get(read.get("kind", ""), WORKLOAD)
        yield _read(read, shape, "", Fields(read).named)


def _read(value: Any, shape: Shape, at: str, named: str) -> Any:
    if isinstance(shape, dict):
        _check(value, dict, at, named)
        return _read_fields(value, shape, at, named)
    if isinstance(shape, list):
        _check(value, list, at, named)
        return [_read(each, shape[0], f"{at}[{i}]", named) for i, each in enumerate(value)]
    _check(value, shape, at, named)
    return value


def _read_fields(manifest: Manifest, shape: Mapping[str, Shape], at: str, named: str) -> Manifest:
    made = dict(manifest)
    for key, inner in shape.items():
        name, path = key.removesuffix("!"), f"{at}.{key}".strip(".!")
        if made.get(name) is not None:
            made[name] = _read(made[name], inner, path, named)
        elif name != key:
            kind = type(inner) if isinstance(inner, dict | list) else inner
            raise ValueError(f"{named}: {path} is missing; it has to be {_accepted(kind)}")
        else:
            made.pop(name, None)
    return made


def _check(value: Any, kind: type, at: str, named: str) -> None:
    is_ok = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    where = at or "the document"
    if kind is not object and not is_ok:
        raise ValueError(f"{named}: {where}: {str(value)[:40]!r} is not {_accepted(kind)}")
    for key in value if kind is dict else ():
        if not isinstance(key, str):
            raise ValueError(f"{named}: {where}: the key {str(key)[:40]} is not a text")


def _accepted(kind: type) -> str:
    return _ACCEPTED.get(kind, "given")
