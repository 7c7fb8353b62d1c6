"""Says where and why a text is not YAML."""

import re
from typing import Final

import yaml

_SOURCE: Final = re.compile(r' in "<\w+ string>",')
#: Characters that are shown of a message without a place.
_LONGEST: Final = 300


def yaml_fault(error: Exception) -> str:
    """The message of a parser's error in one line, without an excerpt of the text.

    An invalid date in the text is a ValueError.
    """
    if not isinstance(error, yaml.MarkedYAMLError):
        return _SOURCE.sub(" at", " ".join(str(error).split()))[:_LONGEST]
    words = (error.context, error.context_mark), (error.problem, error.problem_mark)
    return ", ".join(f"{what}{_place(mark)}" for what, mark in words if what)


def _place(mark: yaml.Mark | None) -> str:
    return f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
