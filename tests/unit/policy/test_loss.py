"""The cost of an eviction: the restart, and all work or the work since the last checkpoint."""

import pytest

from extender.policy.preemption.lost_work import RESTART_S, seconds_lost
from extender.state.model import PodView

NOW_S = 1_000_000


def lost_by(ran_s: int, checkpoint_s: int | None, usual_s: int = 0) -> int:
    pod = PodView(
        uid="u", namespace="n", name="p", started_at=NOW_S - ran_s, checkpoint_s=checkpoint_s
    )
    return seconds_lost(pod, NOW_S, usual_s) - RESTART_S


def test_a_pod_that_says_nothing_loses_all_it_ran() -> None:
    assert lost_by(86_400, 0) == 86_400


def test_a_pod_that_has_not_started_loses_its_restart() -> None:
    pod = PodView(uid="u", namespace="n", name="p", checkpoint_s=600)
    assert seconds_lost(pod, NOW_S, 0) == RESTART_S


def test_a_clock_that_is_behind_makes_no_negative_loss() -> None:
    assert lost_by(-5, 0) == 0


@pytest.mark.parametrize(
    ("ran_s", "lost_s"),
    [
        (599, 599),  # not yet saved
        (601, 601),  # due, and perhaps not done
        (659, 659),
        (660, 60),  # done by now
        (1200, 600),
        (1259, 659),
        (1260, 60),
        (6000, 600),
    ],
)
def test_a_pod_that_saves_loses_what_it_ran_since(ran_s: int, lost_s: int) -> None:
    assert lost_by(ran_s, 600) == lost_s


def test_a_pod_that_says_nothing_saves_its_work_as_often_as_its_node_pool_says() -> None:
    assert lost_by(2000, None, usual_s=1800) == 200
    assert lost_by(2000, None, usual_s=0) == 2000
    # What a pod says counts, "never" too.
    assert lost_by(2000, 600, usual_s=1800) == 200
    assert lost_by(2000, 0, usual_s=1800) == 2000
