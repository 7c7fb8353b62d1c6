"""Emptying of nodes runs once in a while, all other stages in every cycle."""

from extender.cycle.stage_turns import EMPTY_EVERY_S, StageTurns
from extender.policy.plan import ALL_STAGES


def test_nodes_are_emptied_in_the_first_cycle_and_then_every_ten_seconds() -> None:
    now_s = 100.0
    turns = StageTurns(lambda: now_s)
    ran = []
    for _ in range(21):
        stages = turns.next()
        assert tuple(stage for stage in ALL_STAGES if stage in stages) == stages
        assert set(ALL_STAGES) - set(stages) <= {"empty-nodes"}
        ran.append("empty-nodes" in stages)
        now_s += 1
    assert [at for at, is_run in enumerate(ran) if is_run] == [0, 10, 20]
    assert EMPTY_EVERY_S == 10
