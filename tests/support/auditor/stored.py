"""Objects as kube-apiserver stores them by default, in protobuf, as the JSON that clients see.

Only the fields that `sight` reads are declared, with the numbers of `generated.proto` in
k8s.io/api/core/v1 and k8s.io/apimachinery (1.36); protobuf skips the others. Custom resources are
stored as JSON and returned unchanged.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

#: Prefix of a stored protobuf object: `k8s` and a zero byte; a `runtime.Unknown` follows.
MAGIC: Final = b"k8s\x00"

_FieldProto = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _FieldProto.TYPE_STRING,
    "bytes": _FieldProto.TYPE_BYTES,
    "bool": _FieldProto.TYPE_BOOL,
    "int32": _FieldProto.TYPE_INT32,
    "int64": _FieldProto.TYPE_INT64,
}
#: Message -> field -> (number, type). `[]` repeats a type, `{}` maps strings to it.
_MESSAGES: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "Unknown": {"raw": (2, "bytes"), "contentEncoding": (3, "string")},
    "Time": {"seconds": (1, "int64")},
    "Quantity": {"string": (1, "string")},
    "OwnerReference": {
        "kind": (1, "string"),
        "name": (3, "string"),
        "uid": (4, "string"),
        "controller": (6, "bool"),
    },
    "ObjectMeta": {
        "name": (1, "string"),
        "namespace": (3, "string"),
        "uid": (5, "string"),
        "creationTimestamp": (8, "Time"),
        "deletionTimestamp": (9, "Time"),
        "labels": (11, "{}string"),
        "annotations": (12, "{}string"),
        "ownerReferences": (13, "[]OwnerReference"),
    },
    "ResourceRequirements": {"limits": (1, "{}Quantity"), "requests": (2, "{}Quantity")},
    "Container": {
        "name": (1, "string"),
        "resources": (8, "ResourceRequirements"),
        "restartPolicy": (24, "string"),
    },
    "PodSchedulingGate": {"name": (1, "string")},
    "PodSpec": {
        "containers": (2, "[]Container"),
        "nodeName": (10, "string"),
        "schedulerName": (19, "string"),
        "initContainers": (20, "[]Container"),
        "priority": (25, "int32"),
        "schedulingGates": (38, "[]PodSchedulingGate"),
    },
    "PodCondition": {"type": (1, "string"), "status": (2, "string"), "reason": (5, "string")},
    "PodStatus": {
        "phase": (1, "string"),
        "conditions": (2, "[]PodCondition"),
        "nominatedNodeName": (11, "string"),
    },
    "Pod": {"metadata": (1, "ObjectMeta"), "spec": (2, "PodSpec"), "status": (3, "PodStatus")},
    "NodeSpec": {"unschedulable": (4, "bool")},
    "Node": {"metadata": (1, "ObjectMeta"), "spec": (2, "NodeSpec")},
    "ObjectReference": {
        "kind": (1, "string"),
        "namespace": (2, "string"),
        "name": (3, "string"),
        "uid": (4, "string"),
    },
    "Event": {
        "metadata": (1, "ObjectMeta"),
        "involvedObject": (2, "ObjectReference"),
        "reason": (3, "string"),
    },
}


def as_json(kind: str, stored: bytes) -> bytes:
    """The stored object of this kind as JSON.

    Raises ValueError if it is invalid, or protobuf of a kind that is not declared here.
    """
    if not stored.startswith(MAGIC):
        return stored
    if kind not in _MESSAGES:
        raise ValueError(f"{kind} is stored as protobuf and not declared in {__name__}")
    try:
        envelope = _CLASSES["Unknown"].FromString(stored[len(MAGIC) :])
        if envelope.contentEncoding:  # type: ignore[attr-defined]
            raise ValueError(f"{kind} is stored with an encoding that is not read here")
        return msgspec.json.encode(_plain(_CLASSES[kind].FromString(envelope.raw)))  # type: ignore[attr-defined]
    except DecodeError as error:
        raise ValueError(f"{kind} is stored as protobuf that cannot be read: {error}") from error


def _plain(value: Any) -> Any:
    """A message as JSON values, with only the stored fields."""
    if not isinstance(value, Message):
        return value
    name = value.DESCRIPTOR.name
    if name == "Quantity":
        return value.string  # type: ignore[attr-defined]
    if name == "Time":
        return value.seconds  # type: ignore[attr-defined]
    fields: dict[str, Any] = {}
    for field, found in value.ListFields():
        kind = _MESSAGES[name][field.name][1]
        if kind.startswith("{}"):
            fields[field.name] = {key: _plain(each) for key, each in found.items()}
        elif kind.startswith("[]"):
            fields[field.name] = [_plain(each) for each in found]
        else:
            fields[field.name] = _plain(found)
    return fields


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="stored.proto", package="stored")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _declare(message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"stored.{name}"))
        for name in _MESSAGES
    }


def _declare(message: descriptor_pb2.DescriptorProto, field: str, number: int, kind: str) -> None:
    of = kind.removeprefix("[]").removeprefix("{}")
    is_many = kind != of
    declared = message.field.add(name=field, number=number)
    declared.label = _FieldProto.LABEL_REPEATED if is_many else _FieldProto.LABEL_OPTIONAL
    if not kind.startswith("{}"):
        _type(declared, of)
        return
    entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:]}Entry")
    entry.options.map_entry = True
    for at, (part, part_kind) in enumerate((("key", "string"), ("value", of)), start=1):
        _type(entry.field.add(name=part, number=at, label=_FieldProto.LABEL_OPTIONAL), part_kind)
    declared.type = _FieldProto.TYPE_MESSAGE
    declared.type_name = f".stored.{message.name}.{entry.name}"


def _type(declared: _FieldProto, kind: str) -> None:
    if kind in _SCALARS:
        declared.type = _SCALARS[kind]
    else:
        declared.type = _FieldProto.TYPE_MESSAGE
        declared.type_name = f".stored.{kind}"


_CLASSES: Final = _classes()
