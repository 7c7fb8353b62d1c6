"""When a Workload is queried, and when again."""

from msgspec import Raw

from extender.api.objects import ObjectMeta
from extender.dispatch.kinds import Workload, WorkloadStatus
from extender.dispatch.turns import (
    AGAIN_S,
    ARRIVES_S,
    MOST_AGAIN_S,
    MOST_BYTES_IN_FLIGHT,
    SETTLE_S,
    Turns,
)
from extender.view.answers import WantedPods, WantedWorkload

RESERVE_S = 100.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def workload(*nominated: str, version: int = 1, uid: str = "u") -> Workload:
    meta = ObjectMeta(name="train", namespace="ns", uid=uid, resource_version=str(version))
    return Workload(metadata=meta, status=WorkloadStatus(nominated_cluster_names=list(nominated)))


def wanted(name: str = "train") -> WantedWorkload:
    return WantedWorkload(namespace="ns", name=name, pod_sets=[])


def test_a_new_workload_is_due_at_once_and_a_nominated_one_after_its_time() -> None:
    clock = Clock()
    assert Turns(RESERVE_S, clock).look(workload()).due == clock.now
    assert Turns(RESERVE_S, clock).look(workload("a")).due == clock.now + RESERVE_S


def test_a_nomination_that_lapses_again_and_again_holds_longer_up_to_a_bound() -> None:
    clock = Clock()
    turns = Turns(RESERVE_S, clock)
    turn = turns.look(workload())
    held = []
    for name in "abcdef":
        turns.lapse(turn)
        turns.nominate(turn, [name], wanted())
        held.append(turn.due - clock.now)
        clock.now = turn.due
    assert held == [100, 200, 400, 800, 800, 800]
    assert turn.tried == set("abcde")


def test_without_a_cluster_the_question_is_repeated_ever_more_rarely() -> None:
    clock = Clock()
    turns = Turns(RESERVE_S, clock)
    turn = turns.look(workload())
    waits = []
    for _ in range(9):
        turns.refuse(turn)
        waits.append(turn.due - clock.now)
    assert waits[:3] == [AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S]
    assert waits[-1] == MOST_AGAIN_S
    assert turns.next_due() == turn.due


def test_a_watch_that_lags_behind_the_nomination_does_not_begin_anew() -> None:
    clock = Clock()
    turns = Turns(RESERVE_S, clock)
    turn = turns.look(workload(version=5))
    turns.nominate(turn, ["a"], wanted())
    turn.version = 7
    assert turns.look(workload(version=6)) is turn
    assert turns.look(workload("a", version=7)) is turn
    # Kueue evicted it: its nomination is gone in a newer version.
    again = turns.look(workload(version=9))
    assert (again.nominated, again.due) == ((), clock.now)


def test_another_workload_of_the_same_name_and_one_that_is_gone_are_forgotten() -> None:
    turns = Turns(RESERVE_S, Clock())
    first = turns.look(workload())
    turns.nominate(first, ["a"], wanted())
    assert turns.look(workload(uid="other")) is not first
    turns.keep([], lambda *_: "gone")
    assert turns.next_due() is None


def test_what_was_nominated_lately_is_under_way_there_and_nowhere_else() -> None:
    clock = Clock()
    turns = Turns(RESERVE_S, clock)
    turn = turns.look(workload())
    turns.nominate(turn, ["a"], wanted("first"))
    assert [each.name for each in turns.in_flight("a", wanted("second"))] == ["first"]
    assert turns.in_flight("b", wanted("second")) == []
    assert turns.in_flight("a", wanted("first")) == []
    turns.nominate(turn, ["b"], wanted("first"))
    assert turns.in_flight("a", wanted("second")) == []
    clock.now += SETTLE_S
    assert turns.in_flight("b", wanted("second")) == []


def test_what_has_arrived_or_is_gone_is_no_longer_under_way() -> None:
    clock = Clock()
    turns = Turns(RESERVE_S, clock)
    turn = turns.look(workload())
    turns.nominate(turn, ["a"], wanted("first"))
    turns.keep(["ns/train"], lambda *_: "waits")
    clock.now += ARRIVES_S
    assert turns.in_flight("a", wanted("second"))
    for _ in range(2):
        turns.keep(["ns/train"], lambda *_: "admitted")
        assert turns.in_flight("a", wanted("second"))
        clock.now += ARRIVES_S / 2
    assert not turns.in_flight("a", wanted("second"))
    turns.nominate(turn, ["a"], wanted("first"))
    turns.keep(["ns/train"], lambda *_: "gone")
    assert not turns.in_flight("a", wanted("second"))


def test_what_is_under_way_is_counted_up_to_a_size_that_a_worker_reads() -> None:
    turns = Turns(RESERVE_S, Clock())
    template = Raw(b'"' + b"x" * (MOST_BYTES_IN_FLIGHT // 2) + b'"')
    for name in ("large", "larger", "small"):
        pod_sets = [WantedPods(template=template, count=1)] if name != "small" else []
        asked = WantedWorkload(namespace="ns", name=name, pod_sets=pod_sets)
        turns.nominate(turns.look(workload(uid=name)), ["a"], asked)
    assert [each.name for each in turns.in_flight("a", wanted())] == ["larger", "small"]
