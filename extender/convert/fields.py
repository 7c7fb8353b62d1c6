"""Reads a foreign object such that every field that is not taken is reported."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from extender.api.names import API_VERSION
from extender.api.yaml_errors import yaml_fault

Manifest = dict[str, Any]

#: Fields that the API server writes and that may be dropped without loss.
_SERVER: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "status",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.resourceVersion",
        "metadata.generation",
        "metadata.creationTimestamp",
        "metadata.managedFields",
        "metadata.selfLink",
        "metadata.finalizers",
        "metadata.ownerReferences",
        "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
    }
)
#: Why a field without a reason of its own has no counterpart.
USUAL: Final = "there is no counterpart"


@dataclass(slots=True, frozen=True)
class Served:
    """Objects to list in a live cluster, by the versions of their group, newest first."""

    group: str
    plural: str
    versions: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Lost:
    """A field of an object without an exact counterpart, and why."""

    object: str
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.object}: {self.field}: {self.why}"


@dataclass(slots=True)
class Converted:
    """The result of converting objects. `notes` are decisions that the user should know."""

    objects: list[Manifest] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, manifest: Manifest, system: str) -> None:
        """Note that the object is none of the other system's kinds; a workload is a loss."""
        if _has_pods(manifest):
            why = (
                "only workloads of Kubernetes' own kinds are converted: change its schedulerName,"
                " labels, annotations and GPU requests yourself, and suspend where a queue set it"
            )
            self.lost.append(Lost(Fields(manifest).named, "pod templates", why))
            return
        self.notes.append(f"{Fields(manifest).named} is not an object of {system}: left out")


def _has_pods(value: Any) -> bool:
    """Whether a part of the object is a pod template or the spec of a pod."""
    if isinstance(value, Mapping):
        is_spec = isinstance(value.get("containers"), list)
        return is_spec or any(map(_has_pods, value.values()))
    return isinstance(value, list) and any(map(_has_pods, value))


class Fields:
    """One foreign object. `take` reads a field and marks it as converted."""

    def __init__(self, manifest: Mapping[str, Any], named: str = "") -> None:
        self._manifest = manifest
        meta = manifest.get("metadata") or {}
        space = f"{meta['namespace']}/" if meta.get("namespace") else ""
        kind = manifest.get("kind") or "object without a kind"
        name = meta.get("name") or meta.get("generateName") or ""
        self.named = named or f"{kind} {space}{name}".rstrip()
        self._taken: set[str] = set()

    @property
    def name(self) -> str:
        """metadata.name, or metadata.generateName without its last dash."""
        meta = self._manifest.get("metadata") or {}
        return str(meta.get("name") or str(meta.get("generateName") or "").rstrip("-"))

    @property
    def namespace(self) -> str:
        """metadata.namespace, empty if there is none."""
        return str((self._manifest.get("metadata") or {}).get("namespace", ""))

    def take(self, path: str, absent: Any = None) -> Any:
        """The whole value at a path such as `spec.resources.gpu`."""
        self._taken.add(path)
        found: Any = self._manifest
        for key in path.split("."):
            if not isinstance(found, Mapping) or key not in found:
                return absent
            found = found[key]
        return found

    def lost(self, why: Mapping[str, str]) -> Iterator[Lost]:
        """The fields that were not taken, leaf by leaf; `why` has reasons by the prefix of a path.

        Empty, false and None values are not reported.
        """
        for path, value in _leaves("", self._manifest):
            if _says_nothing(value) or self._is_taken(path):
                continue
            reason = next((text for start, text in why.items() if path.startswith(start)), USUAL)
            yield Lost(self.named, f"{path}={_short(value)}", reason)

    def _is_taken(self, path: str) -> bool:
        known = self._taken | _SERVER
        return any(path == each or path.startswith(f"{each}.") for each in known)


def group_of(manifest: Manifest) -> str:
    """The API group of the object; "v1" of one without a group."""
    return str(manifest.get("apiVersion", "")).partition("/")[0]


def new_object(
    kind: str, name: str, spec: Manifest, *, namespace: str = "", version: str = API_VERSION
) -> Manifest:
    """A new object, of Ballast unless another version is given."""
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def topology_of(manifest: Manifest, why: Mapping[str, str], done: Converted) -> Manifest:
    """The GpuTopology of a Topology; KAI and Kueue use the same format."""
    each = Fields(manifest)
    levels = [{"nodeLabel": level["nodeLabel"]} for level in each.take("spec.levels") or ()]
    done.lost += each.lost(why)
    return new_object("GpuTopology", each.name, {"levels": levels})


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), each)
    else:
        yield path, value


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or value in ("", 0, [], {})


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class UnreadableError(ValueError):
    """A file is not YAML."""


def read_documents(text: str) -> list[Any]:
    """The documents of a file; raises UnreadableError with one line that says what is wrong."""
    try:
        return list(yaml.safe_load_all(text))
    except RecursionError:
        raise UnreadableError("it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UnreadableError(f"neither YAML nor JSON: {yaml_fault(error)}") from None


def documents_of(document: Any) -> Iterator[Manifest]:
    """The objects in a decoded document: itself, or the items of a List; none if it is empty.

    Raises ValueError for anything that is not an object.
    """
    if isinstance(document, Sequence) and not isinstance(document, str):
        for each in document:
            yield from documents_of(each)
    elif isinstance(document, Mapping):
        items = document.get("items")
        if isinstance(items, list):
            yield from documents_of(items)
        else:
            yield dict(document)
    elif document is not None:
        raise ValueError(f"{_short(document)!r} is not an object")
