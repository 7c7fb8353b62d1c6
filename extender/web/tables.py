"""Tables: sorted rows, and pages of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

Row = TypeVar("Row")
#: Rows per page of a long table: ten thousand would delay the first useful content.
ROWS: Final = 200


def ordered(
    rows: Sequence[Row], keys: Mapping[str, Callable[[Row], Any]], sort: str
) -> Sequence[Row]:
    """The rows sorted by the key called `sort`, descending if `-` precedes its name; unchanged if
    there is no such key."""
    key = keys.get(sort.removeprefix("-"))
    return rows if key is None else sorted(rows, key=key, reverse=sort.startswith("-"))


def paging(text: str, n: int) -> dict[str, int]:
    """First and last row of the requested page of `n` rows, and the number of pages."""
    n_pages = max(1, math.ceil(n / ROWS))
    page = min(max(1, int(text) if text.isdecimal() and len(text) < 8 else 1), n_pages)
    first = (page - 1) * ROWS
    return {"page": page, "pages": n_pages, "first": first, "last": min(first + ROWS, n), "n": n}
