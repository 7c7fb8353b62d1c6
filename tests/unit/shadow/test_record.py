"""What a report says of one look, and of several."""

from typing import Any

from extender.shadow.adoption import Seen, adopt
from extender.shadow.record import Record
from extender.view.picture import Picture
from tests.unit.shadow.test_adoption import NOW_S, nodes, on, plain


def look(record: Record, now_s: int, *pods: Any, gpus: int = 2) -> None:
    done = adopt(Seen(nodes=nodes("n1", gpus=gpus), pods=pods))
    record.look(Picture(done.state.snapshot(now_s)), done.assumed)


def test_one_look_tells_who_would_start_and_who_would_stop_for_it() -> None:
    record = Record()
    running = [on(plain(f"a{i}").build(), "n1") for i in range(2)]
    look(record, NOW_S, *running, plain("b", "team-b").build())
    told = record.report()
    a, b = told.projects
    assert (a.project, a.owed, a.held, a.ballast_held) == ("team-a", "1.0", "2.0", "1.0")
    assert (b.project, b.owed, b.held, b.ballast_held, b.waiting, b.ballast_waiting) == (
        "team-b", "1.0", "0.0", "1.0", "1.0", "0.0",
    )  # fmt: skip
    (work,) = told.work
    assert (work.workload, work.outcome, work.taken) == ("team-b/b", "waits", {"team-a": 1})
    assert work.message == "on n1"
    (stop,) = told.stops
    assert (stop.what, stop.project, stop.beneficiary) == ("stops", "team-a", "team-b/b")
    assert float(stop.lost) > 0


def test_free_gpus_while_work_waits_are_idle_and_would_not_be() -> None:
    record = Record()
    look(record, NOW_S, plain("a").build())
    told = record.report()
    assert (told.idle_while_waiting, told.ballast_idle_while_waiting) == ("2.0", "1.0")
    assert told.work[0].taken == {}


def test_free_gpus_without_waiting_work_do_not_count() -> None:
    record = Record()
    look(record, NOW_S, on(plain("a").build(), "n1"))
    assert record.report().looks_with_waiting == 0
    assert record.report().idle_while_waiting == "0.0"


def test_over_several_looks_waits_are_timed_really_and_with_ballast() -> None:
    record, born = Record(), 1_799_999_900
    waiting = plain("b", "team-b").created(born).build()
    full = [on(plain(f"a{i}", "team-b").build(), "n1") for i in range(2)]
    look(record, NOW_S, *full, waiting)
    assert record.report().work[0].ballast_seconds is None
    look(record, NOW_S + 60, full[0], waiting)
    look(record, NOW_S + 120, full[0], on(plain("b", "team-b").created(born).build(), "n1"))
    (work,) = record.report().work
    assert (work.outcome, work.ballast_seconds) == ("started", NOW_S + 60 - born)
    assert work.seconds == NOW_S + 120 - born
    look(record, NOW_S + 180)
    assert record.report().looks == 4
    assert [each.held for each in record.report().series] == ["2", "1", "2", "0"]


def test_work_that_is_gone_before_it_started_is_said_so() -> None:
    record = Record()
    look(record, NOW_S, plain("a", gpus=8).build())
    look(record, NOW_S + 60)
    assert record.report().work[0].outcome == "gone"
