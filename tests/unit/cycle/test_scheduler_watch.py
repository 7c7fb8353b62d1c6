"""When a released pod counts as refused, and when kube-scheduler counts as away."""

from collections.abc import Iterable

from extender.api.events import Upserted
from extender.api.objects import Pod
from extender.cycle.recovery.scheduler_watch import SchedulerWatch
from extender.state.cluster import ClusterState
from extender.state.model import PodView
from tests.support.builders import pod

TIMEOUT_S = 30.0


def view(name: str, epoch: int = 1, answer: str = "", *, awaits_volume: bool = False) -> PodView:
    return PodView(
        uid=name, namespace="ns", name=name, state="reserved", is_gated=False, is_released=True,
        epoch=epoch, answer=answer, awaits_volume=awaits_volume,
    )  # fmt: skip


class Story:
    """Looks at what is released, from second to second."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.watch = SchedulerWatch(self.state, TIMEOUT_S)

    def look(self, now: float, released: Iterable[PodView]) -> None:
        self.watch.look(released, now)

    def bind(self, made: Pod) -> None:
        self.state.apply(Upserted(made))


def bound(name: str) -> Pod:
    made = pod(name).needs(500).bound("n1").build()
    made.metadata.uid = name
    return made


def test_pod_that_kube_scheduler_refused_is_overdue_after_the_timeout() -> None:
    story, refused = Story(), view("a", answer="0/4 nodes are available: 4 no free ports")
    story.look(0, [refused])
    assert not story.watch.is_overdue(refused, TIMEOUT_S)
    assert story.watch.is_overdue(refused, TIMEOUT_S + 1)


def test_pod_without_an_answer_is_never_overdue_and_the_scheduler_away() -> None:
    story, silent = Story(), view("a")
    story.look(0, [silent])
    assert not story.watch.is_away(9)
    assert story.watch.is_away(11)
    assert not story.watch.is_overdue(silent, 3600)


def test_pod_that_later_ones_were_bound_before_is_overdue() -> None:
    story, silent = Story(), view("a")
    story.look(0, [silent])
    story.look(2, [silent, view("b")])
    story.bind(bound("b"))
    story.look(4, [silent])
    assert story.watch.is_overdue(silent, TIMEOUT_S + 1)
    assert not story.watch.is_away(60)


def test_while_a_volume_is_made_for_a_pod_only_kube_schedulers_word_counts() -> None:
    story, waits = Story(), view("a", awaits_volume=True)
    story.look(0, [waits])
    story.look(2, [waits, view("b")])
    story.bind(bound("b"))
    story.look(4, [waits])
    assert not story.watch.is_overdue(waits, 600)
    assert not story.watch.is_away(600)
    told = view("a", answer="binding volumes: context deadline exceeded", awaits_volume=True)
    story.look(601, [told])
    assert story.watch.is_overdue(told, 612)


def test_pods_that_waited_for_an_absent_scheduler_are_not_refused_as_it_comes_back() -> None:
    story = Story()
    first, second = view("a"), view("b")
    story.look(0, [first])
    story.look(2, [first, second])
    story.bind(bound("b"))
    story.look(600, [first])
    assert not story.watch.is_overdue(first, 600)
    assert not story.watch.is_overdue(first, 609)
    assert story.watch.is_overdue(first, 611)


def test_scheduler_is_back_as_soon_as_it_binds() -> None:
    story = Story()
    story.look(0, [view("a"), view("b")])
    assert story.watch.is_away(20)
    story.bind(bound("a"))
    story.look(21, [view("b")])
    assert not story.watch.is_away(22)


def test_time_of_a_new_plan_counts_from_its_release() -> None:
    story, told = Story(), "0/1 nodes are available"
    story.look(0, [view("a", answer=told)])
    again = view("a", epoch=2, answer=told)
    story.look(40, [again])
    assert not story.watch.is_overdue(again, 41)


def test_one_trial_is_released_in_each_period_while_it_is_away() -> None:
    watch = Story().watch
    assert [watch.may_probe(now) for now in (20, 22, 31, 32)] == [True, False, True, False]
