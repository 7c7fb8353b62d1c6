"""Warns about labels and annotations that nothing reads, and that were probably meant for Ballast.

Every unread key under `ballast.dev/` draws a warning. Of other keys, those that differ in a letter
or two from a key of Run:ai or KAI do. It is a warning and not a refusal, because such a key may
belong to a newer version or to another program.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from extender.api import names
from extender.api.demand import COMPUTE_LIMIT, COMPUTE_REQUEST, GPU_ANNOTATIONS
from extender.api.objects import ObjectMeta

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
#: Minimum similarity (`difflib`): two letters swapped or left out of a short word.
ALIKE: Final = 0.86
#: Limits on the keys of one pod that are checked, and on its warnings.
MAX_KEYS: Final = 64
MAX_WARNINGS: Final = 4


def is_suspect(key: str) -> bool:
    """Whether the key is checked here; the webhook's matchConditions send pods that have one."""
    return key.startswith((_PREFIX, "gpu"))


def misspelt(meta: ObjectMeta) -> list[str]:
    """A warning for each unread key that was probably meant for Ballast."""
    found = [
        *_of(meta.annotations, "annotation", NOTES | BARE, LABELS),
        *_of(meta.labels, "label", LABELS, NOTES | BARE),
    ]
    return found[:MAX_WARNINGS]


def misplaced(meta: ObjectMeta, of_pods: ObjectMeta, kind: str) -> Iterator[str]:
    """A warning for each key on an object of this kind that its pod template lacks: Ballast reads
    these keys on pods only."""
    for what, written, there, read in (
        ("annotation", meta.annotations, of_pods.annotations, NOTES | BARE),
        ("label", meta.labels, of_pods.labels, LABELS),
    ):
        for key in sorted(read & set(written or ()) - set(there or ())):
            yield (
                f"{what} {key} has no effect on a {kind}: Ballast reads it on pods; write it into"
                f" spec.template.metadata.{what}s"
            )


def _of(
    mapping: Mapping[str, str] | None, what: str, read: frozenset[str], elsewhere: frozenset[str]
) -> Iterator[str]:
    other = "label" if what == "annotation" else "annotation"
    for key in [each for each in mapping or () if is_suspect(each)][:MAX_KEYS]:
        if key in read:
            continue
        if key in elsewhere:
            yield f"{what} {key} is not read: Ballast reads {key} as {_an(other)}"
        elif near := _nearest(key, read | elsewhere):
            where = what if near in read else other
            yield f"{what} {key:.80} is not read; did you mean the {where} {near}?"
        elif key.startswith(_PREFIX):
            accepted = ", ".join(sorted(each for each in read if each.startswith(_PREFIX)))
            yield f"{what} {key:.80} is not read; Ballast reads {accepted}"


def _nearest(key: str, words: Iterable[str]) -> str:
    """The known key that was probably meant, or the empty string."""
    if key.startswith(_PREFIX):
        # Of two keys that differ only in the prefix, the prefixed one comes last, and stays.
        ordered = sorted(words, key=lambda word: word.startswith(_PREFIX))
        bare = {word.removeprefix(_PREFIX): word for word in ordered}
        key, cutoff = key.removeprefix(_PREFIX), 0.75
    else:
        bare = {word: word for word in words if not word.startswith(_PREFIX)}
        cutoff = ALIKE
    spelled = key[:80].lower().replace("_", "-").replace(".", "-")
    found = get_close_matches(spelled, bare, n=1, cutoff=cutoff)
    return bare[found[0]] if found else ""


def _an(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
