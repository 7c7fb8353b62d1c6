"""Which jobs are replayed, and how many nodes each tenant has."""

import gzip
from pathlib import Path

import pytest

from extender.lab.philly.trace import (
    JOBS_FILE,
    TraceError,
    day_start_s,
    load_trace,
    make_trace,
    shaken,
    share_nodes,
)
from tests.unit.lab.philly_jobs import job, numbered, trace

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster"
GOOD = "2017-10-02 07:01:55,66.0,1,66.0,a"


def written(folder: Path, *lines: str) -> Path:
    with gzip.open(folder / JOBS_FILE, "wt", encoding="utf-8") as text:
        text.write("\n".join(lines) + "\n\n")
    return folder


def test_only_jobs_submitted_in_the_window_are_replayed(tmp_path: Path) -> None:
    rows = [
        "2017-09-30 23:59:59,60.0,1,60.0,a",
        "2017-12-01 00:00:00,60.0,1,60.0,a",
        "2017-11-30 23:59:59,60.0,2,120.0,a",
        "2017-10-01 00:00:00,90.0,1,90.0,a",
    ]
    found = load_trace(written(tmp_path, HEADER, *rows), 2)
    assert [(each.number, each.run_s, each.gpus) for each in found.jobs] == [(0, 90, 1), (1, 60, 2)]


def test_quotas_are_those_of_the_whole_window_whatever_days_are_replayed(tmp_path: Path) -> None:
    rows = ["2017-10-01 00:00:00,900.0,1,900.0,a", "2017-10-09 00:00:00,900.0,1,900.0,b"]
    found = load_trace(written(tmp_path, HEADER, *rows), 8, (9, 9))
    assert found.quota_nodes == {"a": 4, "b": 4}
    assert [each.tenant for each in found.jobs] == ["b"]


def test_jobs_larger_than_their_tenants_quota_are_dropped() -> None:
    jobs = numbered([job("a", 0, 1, 8), job("a", 0, 1, 9), job("b", 0, 2, 8)])
    found = make_trace(jobs, 2)
    assert found.quota_nodes == {"a": 1, "b": 1}
    assert [each.gpus for each in found.jobs] == [8, 8]
    assert found.n_dropped == 1


def test_nodes_are_divided_by_largest_remainder_and_sum_to_what_there_is() -> None:
    assert share_nodes({"a": 50, "b": 27, "c": 23}, 10) == {"a": 5, "b": 3, "c": 2}
    assert share_nodes({"a": 1, "b": 1, "c": 1}, 4) == {"a": 2, "b": 1, "c": 1}


def test_every_tenant_with_a_share_gets_a_node() -> None:
    assert share_nodes({"a": 980, "b": 10, "c": 10}, 4) == {"a": 2, "b": 1, "c": 1}


def test_a_tenant_without_a_tenth_of_a_percent_has_no_quota() -> None:
    assert share_nodes({"a": 100_000, "b": 40}, 3) == {"a": 3}


def test_fewer_nodes_than_tenants_are_refused() -> None:
    with pytest.raises(TraceError, match="2 nodes: wants at least 3"):
        share_nodes({"a": 1, "b": 1, "c": 1}, 2)


def test_the_published_extract_gives_the_quotas_of_the_note(shared: Path) -> None:
    found = load_trace(shared / "traces" / "philly", 64)
    assert list(found.quota_nodes.values()) == [19, 9, 6, 6, 6, 6, 4, 3, 2, 2, 1]
    assert (len(found.jobs), found.n_dropped) == (68_496, 14)
    assert sum(load_trace(shared / "traces" / "philly", 80).quota_nodes.values()) == 80


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2017-10-02,66.0,1,66.0", "not enough values"),
        ("yesterday,66.0,1,66.0,a", "yesterday"),
        ("2017-10-02 07:01:55,soon,1,66.0,a", "soon"),
        ("2017-10-02 07:01:55,nan,1,66.0,a", "nan"),
        ("2017-10-02 07:01:55,66.0,half,66.0,a", "half"),
        ("2017-10-02 07:01:55,66.0,0,66.0,a", "at least 1"),
        ("2017-10-02 07:01:55,66.0,1,66.0,", "a cluster"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(TraceError, match=f"philly_jobs.csv.gz:3: .*{message}"):
        load_trace(written(tmp_path, HEADER, GOOD, line), 2)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="wants the columns timestamp,duration"):
        load_trace(written(tmp_path, "when,how_long", GOOD), 2)


def test_a_file_that_is_not_compressed_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOBS_FILE).write_text(f"{HEADER}\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(TraceError, match="wants a gzipped CSV file"):
        load_trace(tmp_path, 2)


def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--data wants the folder"):
        load_trace(tmp_path, 2)


def test_days_without_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no job was submitted on days 9-10"):
        load_trace(written(tmp_path, HEADER, GOOD), 2, (9, 10))


def test_steady_days_are_those_that_are_replayed() -> None:
    jobs = [job("a", 0, 1, 1)]
    assert trace(jobs, a=1).steady_s == (day_start_s(4), day_start_s(49))
    assert trace(jobs, days=(1, 10), a=1).steady_s == (day_start_s(4), day_start_s(11))
    assert trace(jobs, days=(1, 2), a=1).steady_s == (day_start_s(1), day_start_s(3))


def test_a_seed_moves_submissions_by_less_than_a_minute_and_keeps_them_in_order() -> None:
    known = trace([job("a", at_h / 100, 1, 1) for at_h in range(50)], a=1)
    moved = shaken(known, 7)
    assert moved.jobs != known.jobs
    assert [each.number for each in moved.jobs] == list(range(50))
    assert [each.submit_s for each in moved.jobs] == sorted(each.submit_s for each in moved.jobs)
    late = sum(each.submit_s for each in moved.jobs) - sum(each.submit_s for each in known.jobs)
    assert 0 < late < 50 * 60
    assert shaken(known, 7) == moved
    assert shaken(known, 0) is known
