"""Results of openb replays: means over seeds and the published ones, as JSON or a chart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any, Final

from extender.lab.openb.data import LAST_PERCENT
from extender.lab.openb.replay import Run

#: The arrived demand, in % of the cluster, at which results are compared.
COMPARED_AT: Final = (100, LAST_PERCENT)
#: Our own policy has no published results; it is compared with the best of those.
_RIVAL: Final = {"frag": "fgd"}

#: Published curves by (trace, policy) and seed.
Curves = Mapping[tuple[str, str], Mapping[int, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Figure:
    """Allocation at one percentage of arrived demand, in % of all GPUs, over the seeds.

    `sd` is the sample's standard deviation, None for one seed. `reference` is the published mean
    over the same seeds, or over all published ones if some are missing; None if there is none.
    """

    at: int
    mean: float
    sd: float | None
    reference: float | None

    @property
    def difference(self) -> float | None:
        """Percentage points above the reference."""
        return None if self.reference is None else self.mean - self.reference


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy on one trace; `reference` names the policy with published figures."""

    trace: str
    policy: str
    reference: str
    figures: list[Figure]
    run_s: float


def summarise(runs: Iterable[Run], reference: Curves) -> list[Summary]:
    """One summary for each trace and policy, in the order of their first run."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.trace, run.policy), []).append(run)
    summaries = []
    for (trace, policy), group in groups.items():
        rival = _RIVAL.get(policy, policy)
        published = reference.get((trace, rival), {})
        figures = [_figure(at, group, published) for at in COMPARED_AT]
        run_s = fmean(run.took_s for run in group)
        summaries.append(Summary(trace, policy, rival, figures, run_s))
    return summaries


def overall(summaries: Sequence[Summary]) -> list[Summary]:
    """The mean over the traces of each policy; empty for a single trace."""
    if len({each.trace for each in summaries}) < 2:
        return []
    by_policy: dict[str, list[Summary]] = {}
    for each in summaries:
        by_policy.setdefault(each.policy, []).append(each)
    return [
        Summary(
            f"mean of {len(group)}",
            policy,
            group[0].reference,
            [_mean_of([each.figures[at] for each in group]) for at in range(len(COMPARED_AT))],
            fmean(each.run_s for each in group),
        )
        for policy, group in by_policy.items()
    ]


def as_json(runs: Sequence[Run], summaries: Sequence[Summary]) -> dict[str, Any]:
    """Everything for a file: the summaries and, for each run, its curve from 0 to 130 %."""
    return {
        "unit": "allocated GPUs in % of the cluster's, by arrived GPU demand in % of the same",
        "summary": [
            {
                "trace": each.trace,
                "policy": each.policy,
                "reference_policy": each.reference,
                "run_s": round(each.run_s, 3),
                "at": [
                    {**asdict(figure), "difference": figure.difference} for figure in each.figures
                ],
            }
            for each in [*summaries, *overall(summaries)]
        ],
        "runs": [
            {**asdict(run), "curve": [round(percent, 4) for percent in run.curve]} for run in runs
        ],
    }


def _figure(at: int, group: Sequence[Run], published: Mapping[int, Sequence[float]]) -> Figure:
    values = [run.curve[at] for run in group]
    spread = stdev(values) if len(values) > 1 else None
    seeds = [run.seed for run in group]
    if not published.keys() >= set(seeds):
        seeds = list(published)
    reference = fmean(published[seed][at] for seed in seeds) if seeds else None
    return Figure(at, fmean(values), spread, reference)


def _mean_of(figures: Sequence[Figure]) -> Figure:
    references = [each.reference for each in figures if each.reference is not None]
    reference = fmean(references) if len(references) == len(figures) else None
    return Figure(figures[0].at, fmean(each.mean for each in figures), None, reference)
