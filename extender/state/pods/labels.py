"""Labels of pods, of which thousands have the same."""

from collections.abc import Mapping
from typing import Final

from extender.state.model import Labels
from extender.state.pods.constraints import MAX_BYTES

#: How many distinct pairs are shared. Pods of one owner come one after the other and mostly have
#: the same; a larger table would only keep those of owners long gone.
_MAX_SHARED: Final = 4_096
_pairs: dict[tuple[str, str], tuple[str, str]] = {}


def share_labels(labels: Mapping[str, str]) -> Labels | None:
    """The labels by name; equal pairs are one object. None if they are too large to keep."""
    if sum(len(key) + len(value) for key, value in labels.items()) > MAX_BYTES:
        return None
    if len(_pairs) >= _MAX_SHARED:
        _pairs.clear()
    return tuple(_pairs.setdefault(pair, pair) for pair in sorted(labels.items()))
