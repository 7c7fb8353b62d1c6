"""The findings of the validation rules, in the words that the object's author reads.

An impossible field could never have the stated effect, whatever else the cluster holds: the object
is refused. An odd field is legal and may become valid later, for example when an object that it
names is applied a moment later. It draws a warning, so the order of `kubectl apply` never matters.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from extender.api import listing
from extender.api.names import DNS_LABEL, is_dns_subdomain
from webhooks.spelling import ALIKE

#: A label value; also the name part of a label key (behind the slash).
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
#: Names listed in one sentence; further names are only counted.
MAX_LISTED: Final = 4


class FieldFinding(Struct, frozen=True):
    """One sentence about a field: a reason to refuse the object, or a warning."""

    is_refused: bool
    text: str


def wrong(field: str, what: str, accepted: str, example: str = "") -> FieldFinding:
    """A reason to refuse: what was found, what is accepted, and an example of an accepted value."""
    such_as = f", such as {example}" if example else ""
    return FieldFinding(True, f"{field}: {what}; {accepted}{such_as}")


def odd(field: str, what: str) -> FieldFinding:
    """A warning about a legal value, with its effect."""
    return FieldFinding(False, f"{field}: {what}")


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known one that differs in a letter or two."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def check_name(name: str, what_for: str, example: str) -> Iterable[FieldFinding]:
    """Checks that the object's name is valid as the label of `what_for` that refers to it."""
    if not DNS_LABEL.fullmatch(name):
        yield wrong(
            "metadata.name",
            f"{name!r:.80} cannot be the label of {what_for} that names it",
            "use at most 63 characters of a-z, 0-9 and -",
            example,
        )


def check_labels(field: str, labels: Mapping[str, str], example: str) -> Iterable[FieldFinding]:
    """Checks that a node can have these labels."""
    for key, value in sorted(labels.items()):
        if not is_label_key(key):
            yield wrong(
                field,
                f"{key!r:.80} is not a valid label key, so no node has it",
                "give a name of at most 63 characters, with a domain and / before it or without",
                example,
            )
        elif not _VALUE.fullmatch(value):
            yield wrong(
                field,
                f"{key}: {value!r:.80} is not a valid label value, so no node has it",
                "give at most 63 characters of A-Z, a-z, 0-9, -, _ and .",
                example,
            )


def is_label_key(key: str) -> bool:
    """Whether `key` is a valid label key."""
    domain, slash, name = key.rpartition("/")
    is_domain = not slash or is_dns_subdomain(domain)
    return is_domain and bool(name) and _VALUE.fullmatch(name) is not None


def listed(names: Iterable[str]) -> str:
    """The first names in alphabetical order, and the number of further ones."""
    return listing.listed(sorted(names), MAX_LISTED)
