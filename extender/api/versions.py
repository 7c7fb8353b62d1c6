"""Comparison of resourceVersions, which count up over all objects of a kind (KEP-5504)."""


def version_number(version: str) -> int:
    """The resourceVersion as a number; 0, which is the oldest, if it is none."""
    return int(version) if version.isdecimal() else 0


def is_older(version: str, than: str) -> bool:
    """Whether the first version is older; a version that is no number never is."""
    return 0 < version_number(version) < version_number(than)
