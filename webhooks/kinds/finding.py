"""What a rule finds in an object, and the words that its author reads.

Impossible is what could never do what it says, whatever else the cluster has: it is refused. Odd is
what is legal, and perhaps about to make sense: an object that it names may be applied a moment
later. It is warned of, so that the order of `kubectl apply` never matters.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from extender.api.demand import DNS_LABEL

#: The value of a label, and of a label's key the part behind the slash.
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_DOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.A
)
MAX_DOMAIN: Final = 253
#: Names listed in one sentence before the rest is only counted.
MAX_LISTED: Final = 4


class FieldFinding(Struct, frozen=True):
    """One sentence about a field; the object is refused for it or stored with a warning."""

    is_refused: bool
    text: str


def wrong(field: str, what: str, accepted: str, example: str) -> FieldFinding:
    """What is impossible: what was found, what is accepted, and an example of that."""
    return FieldFinding(True, f"{field}: {what}; {accepted}, such as {example}")


def odd(field: str, what: str) -> FieldFinding:
    """What is legal, with what it means as it stands."""
    return FieldFinding(False, f"{field}: {what}")


def check_name(name: str, what_for: str, example: str) -> Iterable[FieldFinding]:
    """Whether the object's name can stand where others write it: in a label of `what_for`."""
    if not DNS_LABEL.fullmatch(name):
        yield wrong(
            "metadata.name",
            f"{name!r:.80} cannot be the label of {what_for} that names it",
            "use at most 63 characters of a-z, 0-9 and -",
            example,
        )


def check_labels(field: str, labels: Mapping[str, str], example: str) -> Iterable[FieldFinding]:
    """Whether a node can have these labels at all."""
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
    """Whether an object may have a label of this key."""
    domain, slash, name = key.rpartition("/")
    is_domain = not slash or (len(domain) <= MAX_DOMAIN and _DOMAIN.fullmatch(domain) is not None)
    return is_domain and bool(name) and _VALUE.fullmatch(name) is not None


def listed(names: Iterable[str]) -> str:
    """The names in order, the first few of them."""
    ordered = sorted(names)
    more = len(ordered) - MAX_LISTED
    return ", ".join(ordered[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
