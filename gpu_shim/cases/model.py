"""The format of a case: workloads on one card, and the expected result of each.

Numbers are exact: decimals and fractions are never read as floating point.
"""

import re
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import Struct, field

from gpu_shim.policy.shares import Claim, Mode, automatic

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}|/[1-9][0-9]{0,8})?", re.ASCII)
_MIB = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
#: Nanoseconds per second.
SECOND = 1_000_000_000


class Strict(Struct, forbid_unknown_fields=True, kw_only=True):
    """Unknown fields are an error."""


class Asks(Strict, rename="kebab"):
    """The pod's requests, as in its annotations."""

    gpu_fraction: Fraction | None = None
    gpu_memory: int | str | None = None
    gpu_compute_request: Fraction | None = None
    gpu_compute_limit: Fraction | None = None

    def __post_init__(self) -> None:
        if (self.gpu_fraction is None) == (self.gpu_memory is None):
            raise ValueError("asks needs one of gpu-fraction and gpu-memory")
        if self.gpu_memory is not None and not _MIB.fullmatch(str(self.gpu_memory)):
            raise ValueError("gpu-memory is not a whole number of MiB")

    def shares(self, mode: Mode) -> tuple[Fraction, Fraction]:
        """(request, limit): as stated, else the mode's defaults.

        A default request is at most a stated limit, a default limit at least a stated request.
        """
        request, limit = automatic(mode, self.gpu_fraction)
        if self.gpu_compute_limit is not None:
            limit = self.gpu_compute_limit
            request = min(request, limit)
        if self.gpu_compute_request is not None:
            request = self.gpu_compute_request
            limit = limit if self.gpu_compute_limit is not None else max(limit, request)
        return request, limit


class Workload(Strict):
    """One workload on the card: its request, the expected shares, and when it is busy."""

    name: str
    asks: Asks
    busy: bool | list[tuple[Fraction, Fraction]]
    request: Fraction | None = None
    limit: Fraction | None = None
    memory: Fraction | None = None

    def spans(self) -> list[tuple[Fraction, Fraction]]:
        """Its busy intervals if it is not always busy or idle; disjoint and in order."""
        found = list[tuple[Fraction, Fraction]]()
        for start, end in [] if isinstance(self.busy, bool) else sorted(self.busy):
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((start, end))
        return found

    def changes(self, until_s: Fraction) -> list[tuple[Fraction, bool]]:
        """(second, busy from then on), in order, up to `until_s`."""
        if isinstance(self.busy, bool):
            return [(Fraction(0), self.busy)]
        return [
            change
            for start, end in self.spans()
            for change in ((start, True), (end, False))
            if change[0] < until_s
        ]


class Expect(Strict):
    """The expected result."""

    share: dict[str, Fraction] = field(default_factory=dict)
    seconds: dict[str, Fraction] = field(default_factory=dict)
    leases: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: str | list[str] = field(default_factory=list)
    slack: Fraction = Fraction(0)


class CardCase(Strict):
    """One card, its workloads, and the expected result. Times are seconds."""

    id: str
    mode: Mode
    lease: Fraction
    precision: Fraction
    workloads: list[Workload]
    expect: Expect
    about: str = ""
    plan: Fraction | None = None
    window: Fraction | None = None

    def __post_init__(self) -> None:
        if not (self.lease > 0 and 0 < self.precision <= 1):
            raise ValueError("lease must be above 0 and precision in (0, 1]")
        names = [each.name for each in self.workloads]
        if len(set(names)) < len(names) or "" in names:
            raise ValueError("workloads need names, each its own")
        expect = self.expect
        for name in (*expect.share, *expect.seconds, *expect.leases, *self.refused()):
            if name not in names:
                raise ValueError(f"expect names {name!r}, which is not a workload")
        for each in self.workloads:
            if not isinstance(each.busy, bool) and any(start >= end for start, end in each.busy):
                raise ValueError(f"{each.name}: a busy interval ends before it begins")

    def refused(self) -> list[str]:
        """Names of the workloads that must be refused."""
        said = self.expect.refused
        return [said] if isinstance(said, str) else said

    @property
    def is_varying(self) -> bool:
        """Whether a workload is busy for only a part of the time."""
        return any(not isinstance(each.busy, bool) for each in self.workloads)

    def claims(self) -> tuple[list[Claim], list[str]]:
        """Each workload's claim by our rules, and differences from the case's own figures."""
        found, wrong = list[Claim](), list[str]()
        card_mib = self._card_mib()
        for each in self.workloads:
            request, limit = each.asks.shares(self.mode)
            fraction = each.asks.gpu_fraction
            memory = Fraction(int(each.asks.gpu_memory or 0)) / card_mib
            claim = Claim(each.name, request, limit, memory if fraction is None else fraction)
            for what, ours, said in (
                ("request", claim.request, each.request),
                ("limit", claim.limit, each.limit),
                ("memory", claim.memory, each.memory),
            ):
                if said is not None and said != ours:
                    wrong.append(f"{each.name}: {what} is {ours}, expected {said}")
            found.append(claim)
        return found, wrong

    def _card_mib(self) -> Fraction:
        """The card's memory, from the first request in MiB and its stated part of the card."""
        for each in self.workloads:
            if each.asks.gpu_memory is not None and each.memory:
                return int(each.asks.gpu_memory) / each.memory
        return Fraction(16384)


def number(value: object) -> Fraction:
    """The exact fraction of 0.25, "0.25", "1/4" or 3; raises ValueError."""
    text = str(value)
    if isinstance(value, bool) or not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number, such as 0.25 or 1/4")
    return Fraction(text)


def convert(kind: type[Any], value: object) -> Any:
    """The `dec_hook` of msgspec that decodes fractions."""
    if kind is Fraction:
        return number(value)
    raise NotImplementedError(kind)


def case_of(entry: object) -> CardCase:
    """Decode a case from plain values; raises msgspec.ValidationError."""
    return msgspec.convert(entry, CardCase, dec_hook=convert)
