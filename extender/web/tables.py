"""Tables: rows in the order that a heading asks for, and one page of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

Row = TypeVar("Row")
#: Rows of one page of a long table: the first useful content must not wait for ten thousand.
ROWS: Final = 200


def ordered(
    rows: Sequence[Row], keys: Mapping[str, Callable[[Row], Any]], sort: str
) -> Sequence[Row]:
    """The rows by the key called `sort`, from the greatest down where `-` precedes its name; as
    they are where there is no such key."""
    key = keys.get(sort.removeprefix("-"))
    return rows if key is None else sorted(rows, key=key, reverse=sort.startswith("-"))


def paging(text: str, n: int) -> dict[str, int]:
    """First and last row of the page that `text` asks for, of `n` rows, and how many pages there
    are."""
    n_pages = max(1, math.ceil(n / ROWS))
    page = min(max(1, int(text) if text.isdecimal() and len(text) < 8 else 1), n_pages)
    first = (page - 1) * ROWS
    return {"page": page, "pages": n_pages, "first": first, "last": min(first + ROWS, n), "n": n}
