"""Warns about words of a pod that nothing reads, and that were probably meant for Ballast.

Every unread key under `ballast.dev/` draws a warning, and so does one of our names of several words
without that prefix. Of other keys, those that differ in a letter or two from a key of Run:ai or KAI
do, and those keys behind a prefix that they do not have, also as names of resources. It is a
warning and not a refusal, because such a key may belong to a newer version or to another program.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from extender.api import names
from extender.api.aliases import POD_LABELS, POD_NOTES
from extender.api.demand import COMPUTE_LIMIT, COMPUTE_REQUEST, GPU_ANNOTATIONS
from extender.api.objects import ObjectMeta, Pod, PodTemplateSpec

_PREFIX: Final = f"{names.GROUP}/"


def _words(kind: str) -> frozenset[str]:
    """The keys of this kind in `extender.api.names`."""
    found = (value for name, value in vars(names).items() if name.startswith(kind))
    return frozenset(each for each in found if each.startswith(_PREFIX))


LABELS: Final = _words("LABEL_")
NOTES: Final = _words("ANNOTATION_")
#: Annotations without our prefix. The last two are read, and have no effect.
BARE: Final = frozenset(
    (*GPU_ANNOTATIONS, COMPUTE_REQUEST, COMPUTE_LIMIT, "gpu-fraction-limit", "gpu-memory-limit")
)
#: What the author of a pod may state; programs write the others.
_STATED_LABELS: Final = frozenset(
    (
        names.LABEL_PROJECT,
        names.LABEL_WORKLOAD_KIND,
        names.LABEL_POD_GROUP,
        names.LABEL_SUB_GROUP,
        names.LABEL_USER,
        names.LABEL_PREEMPTIBILITY,
        names.LABEL_REPLICA_OF,
    )
)
_STATED_NOTES: Final = frozenset(
    (
        names.ANNOTATION_FRACTION,
        names.ANNOTATION_MEMORY,
        names.ANNOTATION_MEMORY_LIMIT,
        names.ANNOTATION_NODE_POOLS,
        names.ANNOTATION_TOPOLOGY,
        names.ANNOTATION_TOPOLOGY_REQUIRED,
        names.ANNOTATION_TOPOLOGY_PREFERRED,
        names.ANNOTATION_MIN_MEMBER,
        names.ANNOTATION_SUB_GROUPS,
        names.ANNOTATION_CHECKPOINT,
        names.ANNOTATION_EXPECTED_RUN,
        names.ANNOTATION_WEIGHT,
        names.ANNOTATION_HOLD,
        names.ANNOTATION_FLOOR,
    )
)
#: A name without our prefix -> ours. A single word such as `project` may mean anything.
_UNPREFIXED: Final = {
    word.removeprefix(_PREFIX): word for word in _STATED_LABELS | _STATED_NOTES if "-" in word
}
#: Prefixes that the names in `BARE` do not have, and are often written with.
_WRONG: Final = (names.GROUP, "kai.scheduler", "nvidia.com", "run.ai", "runai")
#: Minimum similarity (`difflib`): two letters swapped or left out of a short word.
ALIKE: Final = 0.8
#: Limits on the keys of one pod that are checked, and on its warnings.
MAX_KEYS: Final = 64
MAX_WARNINGS: Final = 4


def _is_suspect(key: str) -> bool:
    """Whether the key is checked here; the webhook's matchConditions send pods that have one."""
    return key.startswith(_PREFIX) or key[:3].lower() == "gpu" or _prefixed(key) != ""


def _prefixed(key: str) -> str:
    """The name in `BARE` that the key is with a wrong prefix, or the empty string."""
    prefix, _, word = key.rpartition("/")
    return word if prefix in _WRONG and word in BARE else ""


def misspelt(pod: Pod | PodTemplateSpec) -> list[str]:
    """A warning for each unread word that was probably meant for Ballast."""
    meta = pod.metadata
    found = [
        *_of(meta.annotations, "annotation", NOTES | BARE, LABELS),
        *_of(meta.labels, "label", LABELS, NOTES | BARE),
        *_of_resources(pod),
    ]
    return found[:MAX_WARNINGS]


def _of_resources(pod: Pod | PodTemplateSpec) -> Iterator[str]:
    """A warning for each annotation that a container requests as if it were a resource."""
    resources = [
        each.resources for each in (*pod.spec.containers, *(pod.spec.init_containers or ()))
    ]
    asked = {
        key for each in resources for listed in (each.requests, each.limits) for key in listed or ()
    }
    for key in sorted(asked):
        if word := _prefixed(key) or (key if key in BARE else ""):
            yield f"resource {key} is not read; did you mean the annotation {word}?"


def without_request(meta: ObjectMeta) -> Iterator[str]:
    """A warning for each annotation that needs a GPU request beside it, on a pod without one."""
    for key in sorted(BARE.intersection(meta.annotations or ())):
        yield f"annotation {key} has no effect: the pod requests no GPU"


def misplaced(meta: ObjectMeta, of_pods: Mapping[str, ObjectMeta], kind: str) -> Iterator[str]:
    """A warning for each key on an object of this kind that all its pod templates lack: Ballast
    reads these keys on pods only. `of_pods` are the templates' metadata by the templates' paths."""
    path = next(iter(of_pods), "")
    for what, read in (("annotation", NOTES | BARE | POD_NOTES), ("label", LABELS | POD_LABELS)):
        written, *there = (
            set((each.annotations if what == "annotation" else each.labels) or ())
            for each in (meta, *of_pods.values())
        )
        for key in sorted(read & written.difference(*there)) if path else ():
            yield (
                f"{what} {key} has no effect on a {kind}: Ballast reads it on pods; write it into"
                f" {path}.metadata.{what}s"
            )


def _of(
    mapping: Mapping[str, str] | None, what: str, read: frozenset[str], elsewhere: frozenset[str]
) -> Iterator[str]:
    other = "label" if what == "annotation" else "annotation"
    suspects = [each for each in mapping or () if _is_suspect(each) or each in _UNPREFIXED]
    for key in suspects[:MAX_KEYS]:
        if key in read:
            continue
        if key in elsewhere:
            yield f"{what} {key} is not read: Ballast reads {key} as {_an(other)}"
        elif near := _nearest(key):
            where = "label" if near in _STATED_LABELS else "annotation"
            yield f"{what} {key:.80} is not read; did you mean the {where} {near}?"
        elif key.startswith(_PREFIX):
            accepted = ", ".join(sorted(_STATED_LABELS if what == "label" else _STATED_NOTES))
            yield f"{what} {key:.80} is not read; Ballast reads {accepted}"


def _nearest(key: str) -> str:
    """The known key that was probably meant, or the empty string."""
    if known := _UNPREFIXED.get(key) or _prefixed(key):
        return known
    bare = {word: word for word in BARE}
    cutoff = ALIKE
    if key.startswith(_PREFIX):
        # Of two keys that differ only in the prefix, the prefixed one stays.
        bare |= {word.removeprefix(_PREFIX): word for word in _STATED_LABELS | _STATED_NOTES}
        key, cutoff = key.removeprefix(_PREFIX), 0.75
    spelled = key[:80].lower().replace("_", "-").replace(".", "-")
    found = get_close_matches(spelled, bare, n=1, cutoff=cutoff)
    return bare[found[0]] if found else ""


def _an(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
