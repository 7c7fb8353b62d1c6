"""Labels and annotations that nothing reads, where one that Ballast reads was probably meant.

A key under `ballast.dev/` can be meant for Ballast only, so each one that is not read is told. Of
other keys those are told that differ from a word of Run:ai's and KAI's in a letter or two. A
warning and not a refusal: such a key may be a word of a newer version, or of another program.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from extender.api import names
from extender.api.demand import COMPUTE_LIMIT, COMPUTE_REQUEST, GPU_ANNOTATIONS
from extender.api.objects import ObjectMeta

_PREFIX: Final = f"{names.GROUP}/"


def _words(kind: str) -> frozenset[str]:
    """The keys that `extender.api.names` has of this kind."""
    found = (value for name, value in vars(names).items() if name.startswith(kind))
    return frozenset(each for each in found if each.startswith(_PREFIX))


LABELS: Final = _words("LABEL_")
NOTES: Final = _words("ANNOTATION_")
#: Words without our prefix; all are annotations. The last two are read, and have no effect.
BARE: Final = frozenset(
    (*GPU_ANNOTATIONS, COMPUTE_REQUEST, COMPUTE_LIMIT, "gpu-fraction-limit", "gpu-memory-limit")
)
#: How alike two words are (`difflib`): two letters exchanged or left out of a short word.
ALIKE: Final = 0.86
#: Keys of one pod that are looked at, and warnings that it gets.
MAX_KEYS: Final = 64
MAX_WARNINGS: Final = 4


def is_suspect(key: str) -> bool:
    """Whether the key is looked at here; the webhook's matchConditions send pods that have one."""
    return key.startswith((_PREFIX, "gpu"))


def misspelt(meta: ObjectMeta) -> list[str]:
    """A warning for each key that is probably meant for Ballast and not read by it."""
    found = [
        *_of(meta.annotations, "annotation", NOTES | BARE, LABELS),
        *_of(meta.labels, "label", LABELS, NOTES | BARE),
    ]
    return found[:MAX_WARNINGS]


def misplaced(meta: ObjectMeta, of_pods: ObjectMeta, kind: str) -> Iterator[str]:
    """A warning for each word that an object of this kind has, and the template of its pods does
    not: Ballast reads it on pods only."""
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
    """The word that the key was probably meant to be, or nothing."""
    if key.startswith(_PREFIX):
        # Of two names for one thing the one with the prefix comes last, and stays.
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
