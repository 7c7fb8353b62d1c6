"""Warnings that the API server sends with an answer, such as those of admission webhooks.

They are headers like `Warning: 299 - "text"`, where quotes and backslashes of the text are escaped
(RFC 7234, section 5.5).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


def read_warnings(headers: Iterable[str]) -> Iterator[str]:
    """The texts in the values of `Warning` headers; unreadable ones are left out."""
    for header in headers:
        for text in _WARNING.findall(header):
            yield _ESCAPED.sub(r"\1", text)
