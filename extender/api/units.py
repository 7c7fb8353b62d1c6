"""Parsing and formatting of milli-GPU, milli-CPU, MiB and ages: ASCII, canonical and exact.

The parsers use full matches of ASCII grammars, since `float()` accepts "nan", "0_5", "0.5\\n" and
Arabic digits, and `re.match("...$")` a trailing newline. Other values raise `UnitError`, whose text
says what is accepted.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

MILLI_PER_GPU: Final = 1000
#: Longest text that is parsed: canonical texts are shorter, and long digit strings cost time.
MAX_TEXT: Final = 16
#: The largest weight that a workload may state.
MAX_WEIGHT: Final = 1000
#: Longest part of a refused text that a message repeats.
MAX_SHOWN: Final = 40

#: Grammars of a quota in GPUs and of a non-negative Kubernetes quantity; the policy
#: `figures.ballast.dev` has the same.
GPUS_PATTERN: Final = r"(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})?"
QUANTITY_PATTERN: Final = (
    r"([0-9]{1,15})(?:\.([0-9]{1,9}))?"
    r"(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]{1,2}|E[0-9]{1,2})?"
)

_FRACTION: Final = re.compile(r"0\.[0-9]{1,3}", re.ASCII)
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_MILLI: Final = re.compile(r"0|[1-9][0-9]{0,2}|1000", re.ASCII)
_GPUS: Final = re.compile(GPUS_PATTERN, re.ASCII)
_QUANTITY: Final = re.compile(QUANTITY_PATTERN, re.ASCII)
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
    """The text is not an accepted value; the message says what is accepted."""


def _refuse(text: object, accepted: str, what: str = "", means: str = "") -> UnitError:
    """The error: its message names the field `what`, shows the value cut and escaped and what it
    `means`, and says what is accepted."""
    if isinstance(text, int | float):
        shown = str(text) if abs(text) < 10**MAX_SHOWN else "so large a number"
    else:
        shown = repr(str(text)[:MAX_SHOWN])
    if len(shown) > MAX_SHOWN:
        shown = f"{shown[:MAX_SHOWN]}..."
    return UnitError(f"{what}{': ' if what else ''}{shown}{means} is not {accepted}")


def _text_of(value: float | str, longest: int) -> str:
    """The value as text; empty, which matches no grammar, if it is too long, negative or a bool."""
    if isinstance(value, str):
        return value if len(value) <= longest else ""
    if isinstance(value, bool) or not 0 <= value < 10**15:
        return ""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def parse_fraction(text: str, what: str = "") -> int:
    """Milli-GPU of a fraction of one card: "0.5" -> 500. Accepts 0.001 to 0.999."""
    accepted = (
        'a fraction between 0.001 and 0.999 with at most three decimals, such as "0.5"; a whole GPU'
        " is the resource nvidia.com/gpu: 1"
    )
    if len(text) > MAX_TEXT or not _FRACTION.fullmatch(text):
        raise _refuse(text, accepted, what)
    milli = int(text[2:].ljust(3, "0"))
    if milli == 0:
        raise _refuse(text, accepted, what)
    return milli


def parse_share(text: str, what: str = "") -> int:
    """Milli of a share of compute time from 0 to 1: "0" -> 0, "0.25" -> 250, "1" -> 1000."""
    if text in ("0", "1"):
        return int(text) * MILLI_PER_GPU
    if len(text) > MAX_TEXT or not _FRACTION.fullmatch(text):
        accepted = 'a share between 0 and 1 with at most three decimals, such as "0.5"'
        raise _refuse(text, accepted, what)
    return int(text[2:].ljust(3, "0"))


def parse_milli(text: str, what: str = "") -> int:
    """A whole number of milli from 0 to 1000, as programs write shares of compute time."""
    if not _MILLI.fullmatch(text):
        raise _refuse(text, 'a whole number from 0 to 1000, such as "500"', what)
    return int(text)


def parse_positive(text: str, what: str, example: str = ', such as "8"') -> int:
    """A whole number from 1 to 999999999 without sign, spaces or leading zeros.

    `example` ends the error message; it names the unit, if there is one.
    """
    if len(text) > MAX_TEXT or not _POSITIVE.fullmatch(text):
        raise _refuse(text, f"a whole number from 1 to 999999999{example}", what)
    return int(text)


def parse_gpus(value: float | str) -> int:
    """Milli-GPU of a quota in GPUs: 4 -> 4000, 2.5 and "2.5" -> 2500. Zero is accepted."""
    text = _text_of(value, MAX_TEXT)
    if not _GPUS.fullmatch(text):
        accepted = "a number of GPUs below 1000000 with at most three decimals, such as 4 or 2.5"
        raise _refuse(value, accepted)
    whole, _, part = text.partition(".")
    return int(whole) * MILLI_PER_GPU + int(part.ljust(3, "0"))


@lru_cache(maxsize=4096, typed=True)
def parse_quantity(value: float | str, per_unit: int = 1, what: str = "") -> int:
    """A Kubernetes quantity times `per_unit`, rounded up to an integer, as kube-scheduler rounds.

    `per_unit=1000` gives milli-CPU ("500m" -> 500, "2" -> 2000). Negative quantities are refused.
    """
    found = _QUANTITY.fullmatch(_text_of(value, 2 * MAX_TEXT))
    if found is None:
        raise _refuse(value, 'a Kubernetes quantity, such as "500m", "2" or "8Gi"', what)
    whole, part, suffix = found.group(1), found.group(2) or "", found.group(3) or ""
    number, divisor = int(whole + part) * per_unit, int(10 ** len(part))
    if suffix in _DIVISOR:
        divisor *= _DIVISOR[suffix]
    elif suffix in _SUFFIX:
        number *= _SUFFIX[suffix]
    elif suffix:
        number *= int(10 ** int(suffix[1:]))
    return -(-number // divisor)


def parse_whole(value: int | str, what: str, example: str = ", such as 2") -> int:
    """A Kubernetes quantity that is a whole number: "2" -> 2, "2000m" -> 2; "500m" is refused."""
    # The smallest unit that the grammar can express: nine decimals of a nano.
    fine = 10**18
    amount = parse_quantity(value, fine, what)
    if amount % fine:
        # The API server writes 0.5 as 500m.
        accepted = f"a whole number{example}"
        raise _refuse(value, accepted, what, f" ({amount / fine:g})" if "m" in str(value) else "")
    return amount // fine


def parse_cpu(value: float | str, what: str = "") -> int:
    """Milli-CPU of a quantity, rounded up."""
    return parse_quantity(value, 1000, what)


def parse_memory(value: float | str, what: str = "") -> int:
    """MiB of a quantity in bytes, rounded up."""
    return -(-parse_quantity(value, 1, what) // _MIB)


def parse_memory_floor(value: float | str) -> int:
    """MiB of a quantity in bytes, rounded down: for capacities, not for requests."""
    return parse_quantity(value) // _MIB


def format_gpus(milli: int) -> str:
    """Milli-GPU as users write it: 2500 -> "2.5", 4000 -> "4"."""
    sign, milli = ("-", -milli) if milli < 0 else ("", milli)
    whole, part = divmod(milli, MILLI_PER_GPU)
    return f"{sign}{whole}" + (f".{part:03d}".rstrip("0") if part else "")


def count_gpus(milli: int) -> str:
    """Milli-GPU with their noun: 1000 -> "1 GPU", 2500 -> "2.5 GPUs"."""
    return f"{format_gpus(milli)} {'GPU' if milli == MILLI_PER_GPU else 'GPUs'}"


def format_cpus(milli: int) -> str:
    """Milli-CPU in cores: 500 -> "0.5 CPU", 2000 -> "2 CPU"."""
    return f"{format_gpus(milli)} CPU"


def format_mib(mib: int) -> str:
    """MiB as text: `20 GiB`, or `500 MiB` if it is not a whole number of GiB."""
    gib, rest = divmod(mib, 1024)
    return f"{mib} MiB" if rest else f"{gib} GiB"


def format_tenths(milli: int) -> str:
    """Milli-GPU as GPUs with one decimal, rounded down, for shares and allocations."""
    return f"{milli // MILLI_PER_GPU}.{milli % MILLI_PER_GPU // 100}"


def format_age(since: str) -> str:
    """How long ago a time in ISO 8601 was, as kubectl writes it: 5m, 3h20m, 2d4h; "-" for none."""
    if not since:
        return "-"
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        n, seconds = divmod(seconds, size)
        if n or parts:
            parts.append(f"{n}{unit}" if n else "")
        if len(parts) == 2:
            break
    return "".join(parts) or "0s"


def share_mib(milli: int, card_mib: int) -> int:
    """MiB of `milli` of a card with `card_mib` MiB; rounded down, so that the shares of a card do
    not add up to more than the card."""
    return milli * card_mib // MILLI_PER_GPU


def share_milli(mib: int, card_mib: int) -> int:
    """Milli of `mib` of a card with `card_mib` MiB, rounded up; above 1000 if it does not fit."""
    if card_mib <= 0:
        return MILLI_PER_GPU + 1
    return -(-mib * MILLI_PER_GPU // card_mib)


def api_time(moment: datetime) -> str:
    """A time as the API writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
