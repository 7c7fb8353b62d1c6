"""`ballast gpu top`: two looks at an agent's metrics as a table."""

from click.testing import CliRunner

from gpu_shim import top
from gpu_shim.cli import gpu

PAGE = """
# TYPE ballast_gpu_memory_used_bytes gauge
ballast_gpu_memory_used_bytes{{card="GPU-a",namespace="team",pod="p"}} 4.194304e+07
# TYPE ballast_gpu_memory_cap_bytes gauge
ballast_gpu_memory_cap_bytes{{card="GPU-a",namespace="team",pod="p"}} 6.7108864e+07
# TYPE ballast_gpu_gate_wait_p99_seconds gauge
ballast_gpu_gate_wait_p99_seconds{{card="GPU-a",namespace="team",pod="p"}} 0.25
# TYPE ballast_gpu_card_memory_bytes gauge
ballast_gpu_card_memory_bytes{{card="GPU-a",index="0"}} 1.34217728e+08
# TYPE ballast_gpu_card_healthy gauge
ballast_gpu_card_healthy{{card="GPU-a",index="0"}} 0.0
# TYPE ballast_agent_evictions counter
ballast_agent_evictions_total 0.0
# TYPE ballast_gpu_share_entitled_ratio gauge
ballast_gpu_share_entitled_ratio{{card="GPU-a",namespace="team",pod="p"}} 0.25
# TYPE ballast_gpu_held_seconds counter
ballast_gpu_held_seconds_total{{card="GPU-a",namespace="team",pod="p"}} {held}
"""


def test_shares_are_those_between_two_looks() -> None:
    before, after = (top.figures(PAGE.format(held=held)) for held in (10.0, 10.5))
    (line,) = top.lines(before, after, took_s=2.0)
    assert (line.pod, line.used_mib, line.cap_mib) == ("team/p", 40, 64)
    assert (line.held, line.entitled) == (0.25, 0.25)


def test_a_pod_that_was_not_there_before_has_held_nothing_yet() -> None:
    (line,) = top.lines(top.Page(), top.figures(PAGE.format(held=9)), took_s=2.0)
    assert line.held == 0


def test_the_table_has_a_line_for_each_pod_and_card() -> None:
    found = top.lines(top.Page(), top.figures(PAGE.format(held=9)), took_s=2.0)
    head, row = top.table(found).splitlines()
    assert head.split() == ["CARD", "POD", "MEMORY", "CAP", "HELD", "ENTITLED", "WAIT", "P99"]
    words = ["GPU-a", "team/p", "40", "MiB", "64", "MiB", "0.0%", "25.0%", "250", "ms"]
    assert row.split() == words


def test_cards_come_first_with_what_pods_may_have_of_them_and_whether_they_are_well() -> None:
    page = top.figures(PAGE.format(held=9))
    found = top.table(top.lines(page, page, took_s=2.0), top.card_lines(page))
    head, row, empty, *_ = found.splitlines()
    assert head.split() == ["INDEX", "CARD", "MEMORY", "CAPS", "USED", "HEALTHY"]
    assert row.split() == ["0", "GPU-a", "128", "MiB", "64", "MiB", "40", "MiB", "NO"]
    assert empty == ""


def test_where_no_agent_answers_it_says_so() -> None:
    done = CliRunner().invoke(gpu, ["top", "--once", "--url", "http://127.0.0.1:1/metrics"])
    assert done.exit_code == 1
    assert "no agent at http://127.0.0.1:1/metrics" in done.output
