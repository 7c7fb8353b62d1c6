"""The benchmark's questions, one function each: the runs, their lines, and the bars."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import Final

from gpu_shim.agent.options import CONTEXT_MIB
from gpu_shim.bench.arbiter import come, hand_over, rest
from gpu_shim.bench.figures import (
    Bar,
    Line,
    Run,
    busy_ns,
    gaps_ns,
    overlap_ns,
    parts_of_windows,
    quantile,
)
from gpu_shim.bench.stage import MS, Bench, Shim, StageOutcome, StageTenant
from gpu_shim.policy.leases import LeaseSettings

GIB_MIB: Final = 1024
OUT_OF_MEMORY: Final = 2
SHIMS: Final[tuple[Shim, ...]] = ("none", "idle", "arbiter")
#: How often each of them is timed, alternately.
N_TURNS: Final = 4


async def solo(bench: Bench) -> list[Line]:
    """The shim's cost for a tenant that has the card alone."""
    lines, before = list[Line](), dict[str, float]()
    launches = await _launches_ns(bench)
    # Processes differ by more than the shim costs, so the median is used.
    launch_ns = {shim: median(each) for shim, each in launches.items()}
    jobs = {
        "5 ms kernels/s": bench.rate(),
        "graphs of 20 kernels, kernels/s": bench.rate(
            amount=bench.step // 20, at_once=20, is_graph=True
        ),
    }
    for shim in SHIMS:
        value, more = launch_ns[shim], launch_ns[shim] - launch_ns["none"]
        bars = () if shim == "none" else (Bar(more, "ns more", most=50),)
        text = f"{value:.1f}" if shim == "none" else f"{value:.1f} ({more:+.1f} ns)"
        text += f", processes {min(launches[shim]):.1f} to {max(launches[shim]):.1f}"
        lines.append(Line(1, f"launch, ns, shim: {shim}", text, bars, int(value > 0)))
        for what, job in jobs.items():
            out = (await bench.stage.play([StageTenant("a", job)], shim, bench.settings))["a"]
            value = out.n / bench.seconds
            less = 100 * (1 - value / before.setdefault(what, value))
            bars = () if shim == "none" else (Bar(less, "% less", most=0.5),)
            text = f"{value:.1f}" if shim == "none" else f"{value:.1f} ({less:.2f} % less)"
            lines.append(Line(1, f"{what}, shim: {shim}", text, bars, int(value > 0)))
    return lines


async def _launches_ns(bench: Bench) -> dict[Shim, list[float]]:
    """The time of a launch by shim, in each process; the shims alternate."""
    job, took = {"do": "launches", "n": 200_000, "loop": str(bench.loop)}, dict[Shim, list[float]]()
    for shim in SHIMS * N_TURNS:
        out = (await bench.stage.play([StageTenant("a", job)], shim, bench.settings))["a"]
        took.setdefault(shim, []).append(out.answers[0]["launch_ns"])
    return took


async def _alone(bench: Bench) -> float:
    """Kernels per second of a tenant that has the card alone, without the shim."""
    out = await bench.stage.play([StageTenant("a", bench.rate())], "none")
    return out["a"].n / bench.seconds


@dataclass(slots=True, frozen=True)
class _Due:
    """The tenants' due shares: the part of each, and the kernels of one alone in the same time."""

    row: int
    what: str
    parts: Mapping[str, float]
    alone_n: float
    bench: Bench

    @property
    def settings(self) -> LeaseSettings:
        """The lease settings."""
        return self.bench.settings


def points_off(bench: Bench, longest_s: float = 0.0) -> float:
    """Points by which a share may be off: one, plus one lease, or kernel of this length.

    A tenant may be ahead or behind by that much at the end.
    """
    return 1 + 100 * max(bench.settings.lease_ns / 1e9, longest_s) / bench.seconds


def _shares(due: _Due, out: Mapping[str, StageOutcome]) -> list[Line]:
    """Shares by work done, by the card's clock, and by the arbiter's account, against due shares.

    Without the shim there is no account, and no bar. A tenant is at most one lease ahead or behind,
    so a window as long as a plan may be two leases off. Windows use the card's clock: a plan of the
    arbiter starts anew whenever a program pauses.
    """
    lines = list[Line]()
    runs = {name: [run for a in each.answers for run in a["runs"]] for name, each in out.items()}
    total_ns = sum(busy_ns(each) for each in runs.values()) or 1
    held_ns = sum(each.held_ns for each in out.values())
    windows = parts_of_windows(runs, int(due.settings.plan_ns), due.settings.lease_ns)
    for name, each in out.items():
        percent = 100 * due.parts[name]
        clock, account = 100 * busy_ns(runs[name]) / total_ns, 100 * each.held_ns / (held_ns or 1)
        off = max((abs(100 * parts[name] - percent) for parts in windows), default=0.0)
        label = f"{due.what}: {name} is due {percent:g} %"
        shares = (
            Bar(abs(clock - percent), "points by clock", most=points_off(due.bench)),
            Bar(abs(account - percent), "points by account", most=points_off(due.bench)),
        )
        text = f"work {100 * each.n / due.alone_n:.1f} %, clock {clock:.1f} %"
        if not held_ns:
            lines.append(Line(due.row, label, text, n_samples=each.n))
            continue
        text += f", account {account:.1f} %"
        lines.append(Line(due.row, label, text, shares, each.n))
        one = Bar(off, "points", most=200 * float(due.settings.precision))
        text = f"{off:.1f} points"
        lines.append(Line(due.row, f"{label}, worst plan", text, (one,), len(windows)))
    return [*lines, *_together(due, runs, sum(each.n for each in out.values()), held_ns > 0)]


def _together(due: _Due, runs: Mapping[str, Sequence[Run]], n: int, is_held: bool) -> list[Line]:
    """The combined use of the card by all tenants."""
    total_ns = sum(busy_ns(each) for each in runs.values()) or 1
    part, overlap = 100 * n / due.alone_n, 100 * overlap_ns(runs) / total_ns
    bars = Bar(part, "% of alone", least=98), Bar(overlap, "% overlap", most=1)
    text = f"{part:.1f} % of alone, overlap {overlap:.2f} %"
    gaps = gaps_ns(runs)
    unused = f"p50 {quantile(gaps, 0.5) / 1e3:.0f} us, p99 {quantile(gaps, 0.99) / 1e3:.0f} us"
    what = f"{due.what}: card unused at a hand-over"
    return [
        Line(due.row, f"{due.what}: all together", text, bars if is_held else (), n),
        Line(due.row, what, unused, n_samples=len(gaps)),
    ]


async def pairs(bench: Bench) -> list[Line]:
    """Two tenants that always compute, 1/4 and 3/4: fair, strict, and without the shim."""
    alone_n = await _alone(bench) * bench.seconds
    parts = {"a": Fraction(1, 4), "b": Fraction(3, 4)}
    plain = [StageTenant(name, bench.rate()) for name in parts]
    halves = _Due(2, "no shim", dict.fromkeys(parts, 0.5), alone_n, bench)
    lines = _shares(halves, await bench.stage.play(plain, "none"))
    due = {name: float(part) for name, part in parts.items()}
    for mode in ("fair", "strict"):
        tenants = [
            StageTenant(name, bench.rate(), part, part if mode == "strict" else Fraction(1))
            for name, part in parts.items()
        ]
        out = await bench.stage.play(tenants, "arbiter", bench.settings)
        lines += _shares(_Due(2, mode, due, alone_n, bench), out)
    return lines


async def idle(bench: Bench) -> list[Line]:
    """A tenant's share while the other is idle, and the unused time under strict."""
    alone = await _alone(bench)
    late = bench.rate(after_s=bench.seconds / 2)
    fair = [StageTenant("a", bench.rate(), Fraction(1, 4)), StageTenant("b", late, Fraction(3, 4))]
    out = await bench.stage.play(fair, "arbiter", bench.settings)
    half = bench.seconds / 2
    expected = alone * half * 1.25
    strict = [StageTenant("a", bench.rate(), Fraction(1, 4), Fraction(1, 4))]
    only = (await bench.stage.play(strict, "arbiter", bench.settings))["a"]
    what = "fair quarter, the other idle for half the time: work against what is due"
    back = "the other, back after that: work against what is due"
    part = 100 * only.n / (alone * bench.seconds)
    bars = (Bar(part, "%", least=24, most=26),)
    return [
        _of_due(3, what, out["a"].n, expected, alone * bench.settings.lease_ns / 1e9),
        _of_due(3, back, out["b"].n, alone * half * 0.75, alone * bench.settings.lease_ns / 1e9),
        Line(3, "strict quarter alone: part of the card", f"{part:.1f} %", bars, only.n),
    ]


def _of_due(row: int, what: str, n: int, due_n: float, lease_n: float) -> Line:
    """Kernels against those due; one lease's kernels may be missing at the end."""
    part = 100 * n / due_n
    least = 97 - 100 * lease_n / due_n
    return Line(row, what, f"{part:.1f} %", (Bar(part, "%", least=least),), n)


async def crowds(bench: Bench) -> list[Line]:
    """More than two tenants: parts and one with memory only, four quarters, ten tenths."""
    alone_n = await _alone(bench) * bench.seconds
    mixed = [("a", Fraction(1, 5)), ("b", Fraction(3, 10)), ("memory", Fraction(0))]
    lines = list[Line]()
    out = await bench.stage.play(
        [StageTenant(name, bench.rate(), part) for name, part in mixed], "arbiter", bench.settings
    )
    third = 0.5 / 3
    due = {name: float(part) + third for name, part in mixed}
    lines += _shares(_Due(4, "0.2, 0.3 and memory, fair", due, alone_n, bench), out)
    for n in (4, 10):
        equal = [
            StageTenant(f"t{at}", bench.rate(), Fraction(1, n), Fraction(1, n)) for at in range(n)
        ]
        out = await bench.stage.play(equal, "arbiter", bench.settings)
        equally = dict.fromkeys(out, 1 / n)
        lines += _shares(_Due(4, f"{n} of 1/{n}, strict", equally, alone_n, bench), out)
    return lines


async def shapes(bench: Bench) -> list[Line]:
    """Two halves, one of which launches in other ways than the other."""
    lines, part = list[Line](), Fraction(1, 2)
    ways = {
        "kernels of 1 s": (bench.spin(1000, at_once=1), 1, points_off(bench, 1.0)),
        "graphs of 200 ms": (bench.spin(5, at_once=40, is_graph=True), 1, points_off(bench)),
        "8 streams": (bench.spin(5, at_once=8, n_streams=8), 1, points_off(bench)),
        "4 programs": (bench.spin(5), 4, points_off(bench)),
    }
    for what, (job, n_programs, points) in ways.items():
        one = StageTenant("a", job, part, part, n_programs=n_programs)
        out = await bench.stage.play(
            [one, StageTenant("b", bench.spin(5), part, part)], "arbiter", bench.settings
        )
        held = {name: each.held_ns for name, each in out.items()}
        total = sum(held.values())
        parts = {name: 100 * ns / (total or 1) for name, ns in held.items()}
        text = ", ".join(f"{name} {of:.1f} %" for name, of in parts.items())
        bar = Bar(parts["a"], "% for a", least=50 - points, most=50 + points)
        label = f"{what} against kernels of 5 ms, half each"
        lines.append(Line(5, label, text, (bar,), out["a"].n if total else 0))
    return lines


async def latency(bench: Bench) -> list[Line]:
    """20 requests of 5 ms a second at a quarter, against three quarters that are always busy."""
    lines = list[Line]()
    job = {"do": "serve", "per_s": 20, "amount": 5 * MS, "seconds": bench.seconds}
    requests = StageTenant("a", job, Fraction(1, 4))
    busy = StageTenant("b", bench.rate(), Fraction(3, 4))
    cases: list[tuple[str, Shim, LeaseSettings]] = [("no shim", "none", bench.settings)]
    for ms in (250, 100, 50, 20):
        settings = replace(bench.settings, lease_ns=ms * MS)
        cases.append((f"leases of {ms} ms", "arbiter", settings))
    for what, shim, settings in cases:
        out = await bench.stage.play([requests, busy], shim, settings)
        took = out["a"].answers[0]["took_ms"]
        text = f"p50 {quantile(took, 0.5):.0f} ms, p99 {quantile(took, 0.99):.0f} ms"
        lines.append(Line(6, f"requests, {what}", text, n_samples=len(took)))
    return lines


async def memory(bench: Bench, cap_mib: int = 16 * GIB_MIB) -> list[Line]:
    """All ways to allocate memory, up to the cap and not beyond it."""
    lines, margin_mib = list[Line](), max(64, cap_mib // 100)
    for way in ("plain", "managed", "queued", "physical"):
        job = {"do": "fill", "way": way, "step_mib": 64}
        out = await bench.stage.play([StageTenant("a", job, cap_mib=cap_mib)], "arbiter")
        first = out["a"].answers[0]
        taken, free, status = first["taken_mib"], first["free_mib"], first["status"]
        code = "out of memory" if status == OUT_OF_MEMORY else f"error {status}"
        bars = (
            # The context is not free at first.
            Bar(free, "MiB free at first", cap_mib - 2 * CONTEXT_MIB, cap_mib),
            Bar(taken, "MiB taken", free - margin_mib, free),
            Bar(status, "as the error", OUT_OF_MEMORY, OUT_OF_MEMORY),
        )
        value = f"{taken} MiB of {free} free, then {code}"
        lines.append(Line(7, f"{way}: taken of {cap_mib} MiB", value, bars, taken))
    total = Bar(first["total_mib"], "MiB", cap_mib, cap_mib)
    what = "total that the driver reports"
    lines.append(Line(7, what, f"{first['total_mib']} MiB", (total,)))
    return lines


async def failures(bench: Bench) -> list[Line]:
    """A holder is killed; the arbiter is killed and comes back."""
    part, lines = Fraction(1, 2), list[Line]()
    alone = await _alone(bench)
    tenants = [StageTenant("a", bench.rate(), part, part), StageTenant("b", bench.rate(), part)]
    out = await bench.stage.play(
        tenants, "arbiter", bench.settings, [(bench.seconds / 2, "kill a")]
    )
    due = alone * bench.seconds * 0.75
    what = "one is killed half way: work of the other against what is due"
    lines.append(_of_due(8, what, out["b"].n, due, alone * bench.settings.lease_ns / 1e9))
    events = [(bench.seconds / 3, "stop"), (2 * bench.seconds / 3, "start")]
    out = await bench.stage.play(tenants, "arbiter", bench.settings, events)
    answers = [answer for each in out.values() for answer in each.answers]
    runs = sorted(run for answer in answers for run in answer["runs"])
    gap_ns = max((after[0] - before[1] for before, after in pairwise(runs)),
                 default=0)  # fmt: skip
    # The gates open after a second without the arbiter.
    bar = Bar(gap_ns / 1e9, "s", most=1 + bench.settings.lease_ns / 1e9)
    what = "arbiter killed and back: longest time with nothing on the card"
    lines.append(Line(8, what, f"{gap_ns / 1e9:.2f} s", (bar,), len(runs)))
    return lines


Row = Callable[[Bench], Awaitable[Sequence[Line]]]
ROWS: Final[dict[int, Row]] = {
    1: solo, 2: pairs, 3: idle, 4: crowds, 5: shapes, 6: latency, 7: memory, 8: failures,
    10: hand_over, 11: come, 12: rest,
}  # fmt: skip
