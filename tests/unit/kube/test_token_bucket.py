"""A token bucket: the rate of accepted connections and of written Events."""

from extender.kube.backoff import TokenBucket


def test_first_ones_come_together_and_the_next_one_after_another() -> None:
    pace = TokenBucket(a_second=10, at_once=3, now=0.0)
    assert [pace.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert pace.take(0.0) == 0.1
    assert pace.take(0.1) == 0.0
    assert pace.take(0.1) > 0


def test_answered_requests_earn_turns_up_to_the_bound() -> None:
    pace = TokenBucket(a_second=1, at_once=2, now=0.0)
    assert [pace.take(0.0), pace.take(0.0)] == [0.0, 0.0]
    for _ in range(100):
        pace.earn(0.1)
    assert [pace.take(0.0), pace.take(0.0)] == [0.0, 0.0]
    assert pace.take(0.0) > 0


def test_quiet_time_fills_the_bucket_and_no_more() -> None:
    pace = TokenBucket(a_second=10, at_once=2, now=0.0)
    assert [pace.take(3600.0) == 0.0 for _ in range(3)] == [True, True, False]
