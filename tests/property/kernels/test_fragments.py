"""The kernels of placement by fragmentation and their Python twins give the same answers."""

from array import array
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.demand import Demand
from extender.kernels import fragments
from extender.kernels.typical import (
    MOST_MODELS,
    Fragments,
    Scores,
    TypicalPod,
    fgd_measure,
)
from extender.lab.kernels import baselines, published
from extender.lab.openb.measures import frag_measure, published_measure
from extender.state.nodes import NodeTable
from tests.property.policy.test_twins import demands, tables
from tests.twins import baselines_twin, fragments_twin, published_twin

RUN = settings(max_examples=200)

typical_pods = st.lists(
    st.builds(
        TypicalPod,
        cpu_milli=st.integers(0, 3),
        devices=st.integers(1, 4),
        milli=st.sampled_from([1, 250, 333, 500, 1000]),
        weight=st.integers(1, 50),
        models=st.sampled_from([0b01, 0b10, 0b11]),
    )
    | st.builds(TypicalPod, st.integers(0, 3), st.just(0), st.just(0), st.integers(1, 50)),
    min_size=1,
    max_size=8,
)


@dataclass
class Baseline:
    rule: int
    tags: "array[int]"


@RUN
@given(tables(), typical_pods, demands, st.booleans(), st.data())
def test_fragment_kernels_agree_with_their_twins(
    table: NodeTable, pods: list[TypicalPod], demand: Demand, is_frag: bool, data: st.DataObject
) -> None:
    n = len(table)
    models = array("i", data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    candidates = array("i", data.draw(st.permutations(range(n))))
    cost = array("i", [3, data.draw(st.integers(0, 9))]) + array("i", [0]) * (MOST_MODELS - 2)
    typical = frag_measure(pods) if is_frag else fgd_measure(pods)
    answers = []
    for kernel in (fragments, fragments_twin):
        known, scores = Fragments(typical, models), Scores.of(n)
        kernel.measure_nodes(table, known, candidates)
        kernel.score_nodes(table, known, demand, candidates, scores)
        best = kernel.best_of(scores, candidates, models, cost)
        answers.append((known.waste, scores.score, scores.card, best))
    assert answers[0] == answers[1]


@RUN
@given(tables(), typical_pods, demands, st.data())
def test_fgd_in_doubles_agrees_with_its_twin_to_the_last_bit(
    table: NodeTable, pods: list[TypicalPod], demand: Demand, data: st.DataObject
) -> None:
    n = len(table)
    models = array("i", data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    n_pods = sum(pod.weight for pod in pods) + data.draw(st.integers(0, 9))
    answers = []
    for kernel in (published, published_twin):
        known, scores = published_measure(pods, n_pods, models), Scores.of(n)
        kernel.measure_nodes(table, known, array("i", range(n)))
        kernel.score_nodes(table, known, demand, array("i", range(n)), scores)
        answers.append((known.waste, scores.score, scores.card))
    assert answers[0] == answers[1]


@RUN
@given(tables(), demands, st.integers(0, 3), st.data())
def test_baseline_kernel_agrees_with_its_twin(
    table: NodeTable, demand: Demand, rule: int, data: st.DataObject
) -> None:
    n = len(table)
    tags = array("Q", data.draw(st.lists(st.integers(0, 15), min_size=n, max_size=n)))
    answers = []
    for kernel in (baselines, baselines_twin):
        scores = Scores.of(n)
        kernel.score_nodes(table, Baseline(rule, tags), demand, array("i", range(n)), scores)
        answers.append(scores.score)
    assert answers[0] == answers[1]


@RUN
@given(tables(), typical_pods)
def test_fragmentation_lies_between_nothing_and_all_that_is_idle(
    table: NodeTable, pods: list[TypicalPod]
) -> None:
    for typical in (fgd_measure(pods), frag_measure(pods)):
        known = Fragments(typical, array("i", [0]) * len(table))
        fragments.measure_nodes(table, known, array("i", range(len(table))))
        for ix in range(len(table)):
            idle = sum(milli for milli in table.cards.free_of(ix) if milli > 0)
            assert 0 <= known.waste[ix] <= idle * typical.unit
