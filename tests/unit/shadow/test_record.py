"""Reports of one look, and of several."""

from datetime import UTC, datetime
from typing import Any

import pytest

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.shadow import record as record_module
from extender.shadow.adoption import Seen, adopt
from extender.shadow.command import print_report
from extender.shadow.page import as_html
from extender.shadow.peers import read_peers
from extender.shadow.reading import Watched
from extender.shadow.record import Record
from extender.view.picture import Picture
from tests.unit.shadow.test_adoption import NOW_S, nodes, on, plain


def look(record: Record, now_s: int, *pods: Any, gpus: int = 2) -> None:
    take(record, now_s, Seen(nodes=nodes("n1", gpus=gpus), pods=pods))


def take(record: Record, now_s: int, seen: Seen) -> None:
    done = adopt(seen)
    record.look(Picture(done.state.snapshot(now_s)), done.assumed, done.started)


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


def test_work_that_is_gone_and_never_ran_is_said_so() -> None:
    record = Record()
    look(record, NOW_S, plain("a", gpus=8).build())
    look(record, NOW_S + 60)
    assert record.report().work[0].outcome == "gone"


BORN_S = NOW_S - 100


def timed(name: str) -> Any:
    return plain(name, "team-b").created(BORN_S)


def started(built: Pod, at_s: int) -> Pod:
    on(built, "n1").status.start_time = datetime.fromtimestamp(at_s, UTC)
    return built


def fates(record: Record) -> list[tuple[str, str, int]]:
    return [(each.workload, each.outcome, each.seconds) for each in record.report().work]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_work_that_ran_and_ended_between_two_looks_has_started(phase: str) -> None:
    record = Record()
    look(record, NOW_S, timed("b").build())
    ended = started(timed("b").build(), NOW_S + 5)
    ended.status.phase = phase
    look(record, NOW_S + 60, ended)
    assert fates(record) == [("team-b/b", "started", 105)]


def test_work_that_ran_and_was_removed_between_two_looks_has_started() -> None:
    watched, record = Watched(), Record()

    def see(now_s: int) -> None:
        done = watched.adopted([], [], [])
        record.look(Picture(done.state.snapshot(now_s)), done.assumed, done.started)

    watched.deliver(Upserted(timed("b").build()))
    see(NOW_S)
    ran = started(timed("b").build(), NOW_S + 5)
    watched.deliver(Upserted(ran))
    watched.deliver(Removed(Pod, ran.metadata.uid, "team-b", "b"))
    see(NOW_S + 60)
    assert fates(record) == [("team-b/b", "started", 105)]


def test_end_of_earlier_work_of_the_name_is_no_start() -> None:
    record = Record()
    look(record, NOW_S, timed("b").build())
    before = started(timed("b").build(), BORN_S - 50)
    before.status.phase = "Failed"
    look(record, NOW_S + 60, before)
    assert fates(record) == [("team-b/b", "gone", 160)]


def test_work_that_waits_again_is_not_charged_the_time_that_it_ran() -> None:
    record = Record()
    look(record, NOW_S, *(timed(n).gang("g", 2).build() for n in ("b0", "b1")))
    look(record, NOW_S + 60, *(on(timed(n).gang("g", 2).build(), "n1") for n in ("b0", "b1")))
    first = on(timed("b0").gang("g", 2).build(), "n1")
    again = plain("b1", "team-b").created(NOW_S + 18_000).gang("g", 2).build()
    look(record, NOW_S + 18_005, first, again)
    assert fates(record) == [("team-b/g", "started", 160), ("team-b/g", "waits", 5)]
    assert record.report().waited == 1


def kueue(*true: tuple[str, str]) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in true]
    return {
        "metadata": {
            "name": "job-train-ab12c", "namespace": "team-a", "uid": "w1",
            "creationTimestamp": "2027-01-15T07:58:20Z",
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j1"}
            ],
        },
        "spec": {"podSets": [
            {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        ]},
        "status": {"conditions": conditions},
    }  # fmt: skip


def see_kueue(record: Record, now_s: int, *true: tuple[str, str]) -> None:
    take(record, now_s, Seen(nodes=nodes("n1"), peers=read_peers([], [kueue(*true)])))


def test_job_that_kueue_admits_has_started() -> None:
    admitted, record = ("Admitted", "2027-01-15T08:00:30Z"), Record()
    see_kueue(record, NOW_S)
    see_kueue(record, NOW_S + 60, admitted)
    assert fates(record) == [("team-a/job-train-ab12c", "started", 130)]
    again = Record()
    see_kueue(again, NOW_S)
    see_kueue(again, NOW_S + 60, admitted, ("Finished", "2027-01-15T08:00:50Z"))
    assert fates(again) == fates(record)


def test_job_that_kueue_stops_waits_from_then() -> None:
    record = Record()
    see_kueue(record, NOW_S + 600, ("Evicted", "2027-01-15T08:09:50Z"))
    assert fates(record) == [("team-a/job-train-ab12c", "waits", 10)]


def test_table_page_and_json_count_workloads_once(capsys: pytest.CaptureFixture[str]) -> None:
    record = Record()
    gang = [on(plain(f"a{i}").gang("g", 1).build(), "n1") for i in range(4)]
    waiting = [plain(name, "team-b").build() for name in "bc"]
    look(record, NOW_S, *gang, *waiting, gpus=4)
    told = record.report()
    assert len(told.stops) == 2
    assert (told.waited, told.would_start, told.would_stop, told.would_move) == (2, 2, 1, 0)
    print_report(told)
    said = " ".join(capsys.readouterr().out.split())
    assert "1 look at 4 GPUs of 1 node; 2 workloads waited" in said
    assert "start 2 of them; 1 would stop" in said
    page = as_html(told)
    assert "4 GPUs on 1 node," in page
    assert "<dt>Workloads it would stop for others</dt><dd>1</dd>" in page


def test_what_is_left_out_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record_module, "MOST_LINES", 1)
    record = Record()
    running = [on(plain(f"a{i}").build(), "n1") for i in range(4)]
    waiting = [plain(name, "team-b").build() for name in "bc"]
    look(record, NOW_S, *running, *waiting, gpus=4)
    told = record.report()
    assert (len(told.work), told.left_out, told.waited) == (1, 1, 2)
    assert (len(told.stops), told.stops_left_out, told.would_stop) == (1, 1, 2)
    print_report(told)
    assert "2 lines of work and stops left out" in " ".join(capsys.readouterr().out.split())
    assert "<dt>Workloads that waited</dt><dd>2</dd>" in as_html(told)
