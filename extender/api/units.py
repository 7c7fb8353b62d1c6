"""Text to integers and back: milli-GPU, milli-CPU, MiB. Strict: ASCII, canonical, exact.

What these functions refuse is refused for a reason: `float()` accepts "nan", "0_5", "0.5\\n" and
Arabic digits, and `re.match("...$")` accepts a trailing newline. Values outside the grammar raise
`UnitError`, whose text says what is accepted.
"""

import re
from typing import Final

MILLI_PER_GPU: Final = 1000
#: Longest text looked at: nothing canonical is longer, and huge digit strings cost time.
MAX_TEXT: Final = 16

_FRACTION: Final = re.compile(r"0\.[0-9]{1,3}", re.ASCII)
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_GPUS: Final = re.compile(r"(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})?", re.ASCII)
_QUANTITY: Final = re.compile(
    r"([0-9]{1,15})(?:\.([0-9]{1,9}))?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]{1,2}|E[0-9]{1,2})?",
    re.ASCII,
)
_SUFFIX: Final = {
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}
_DIVISOR: Final = {"m": 10**3, "u": 10**6, "n": 10**9}
_MIB: Final = 2**20


class UnitError(ValueError):
    """The text is not a value we accept; the message says what is."""


def _refuse(text: object, accepted: str) -> UnitError:
    shown = repr(text)
    return UnitError(f"{shown[:40]}{'...' if len(shown) > 40 else ''} is not {accepted}")


def parse_fraction(text: str) -> int:
    """Milli-GPU of a fraction of one card: "0.5" -> 500. Accepts 0.001 to 0.999."""
    accepted = 'a fraction between 0.001 and 0.999 with at most three decimals, such as "0.5"'
    if len(text) > MAX_TEXT or not _FRACTION.fullmatch(text):
        raise _refuse(text, accepted)
    milli = int(text[2:].ljust(3, "0"))
    if milli == 0:
        raise _refuse(text, accepted)
    return milli


def parse_positive(text: str, what: str) -> int:
    """A whole number from 1 to 999999999 without sign, spaces or leading zeros."""
    if len(text) > MAX_TEXT or not _POSITIVE.fullmatch(text):
        raise _refuse(text, f'{what}: a whole number from 1 up, such as "8192"')
    return int(text)


def parse_gpus(value: int | str) -> int:
    """Milli-GPU of a quota in GPUs: 4 -> 4000, "2.5" -> 2500. Zero is accepted."""
    text = str(value)
    if isinstance(value, bool) or len(text) > MAX_TEXT or not _GPUS.fullmatch(text):
        raise _refuse(value, 'a number of GPUs with at most three decimals, such as 4 or "2.5"')
    whole, _, part = text.partition(".")
    return int(whole) * MILLI_PER_GPU + int(part.ljust(3, "0"))


def parse_quantity(value: int | str, per_unit: int = 1) -> int:
    """A Kubernetes quantity times `per_unit`, rounded up to an integer, as kube-scheduler rounds.

    `per_unit=1000` gives milli-CPU ("500m" -> 500, "2" -> 2000). Negative quantities are refused.
    """
    text = str(value)
    found = _QUANTITY.fullmatch(text) if len(text) <= 2 * MAX_TEXT else None
    if found is None or isinstance(value, bool):
        raise _refuse(value, 'a Kubernetes quantity, such as "500m", "2" or "8Gi"')
    whole, part, suffix = found.group(1), found.group(2) or "", found.group(3) or ""
    number, divisor = int(whole + part) * per_unit, int(10 ** len(part))
    if suffix in _DIVISOR:
        divisor *= _DIVISOR[suffix]
    elif suffix in _SUFFIX:
        number *= _SUFFIX[suffix]
    elif suffix:
        number *= int(10 ** int(suffix[1:]))
    return -(-number // divisor)


def parse_cpu(value: int | str) -> int:
    """Milli-CPU of a quantity, rounded up."""
    return parse_quantity(value, 1000)


def parse_memory(value: int | str) -> int:
    """MiB of a quantity in bytes, rounded up."""
    return -(-parse_quantity(value) // _MIB)


def parse_memory_floor(value: int | str) -> int:
    """MiB of a quantity in bytes, rounded down: for what a node has rather than what a pod asks."""
    return parse_quantity(value) // _MIB


def format_gpus(milli: int) -> str:
    """Milli-GPU as users write it: 2500 -> "2.5", 4000 -> "4"."""
    sign, milli = ("-", -milli) if milli < 0 else ("", milli)
    whole, part = divmod(milli, MILLI_PER_GPU)
    return f"{sign}{whole}" + (f".{part:03d}".rstrip("0") if part else "")


def share_mib(milli: int, card_mib: int) -> int:
    """MiB that `milli` of a card of `card_mib` MiB stands for, rounded down so shares never exceed it."""
    return milli * card_mib // MILLI_PER_GPU


def share_milli(mib: int, card_mib: int) -> int:
    """Milli that `mib` MiB take of a card of `card_mib` MiB, rounded up; above 1000: does not fit."""
    if card_mib <= 0:
        return MILLI_PER_GPU + 1
    return -(-mib * MILLI_PER_GPU // card_mib)
