from hypothesis import given
from hypothesis import strategies as st

from extender.kube.backoff import Backoff, RetryBudget


@given(st.integers(0, 200))
def test_delay_lies_between_half_and_all_of_the_doubled_base(n_before: int) -> None:
    backoff = Backoff(base_s=0.1, cap_s=30)
    for _ in range(n_before):
        backoff.next_s()
    whole = min(30.0, 0.1 * 2**n_before)
    assert whole / 2 <= backoff.next_s() <= whole


def test_reset_starts_from_the_shortest_delay() -> None:
    backoff = Backoff(base_s=0.1, cap_s=30)
    for _ in range(9):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_retries_stop_when_nothing_succeeds() -> None:
    budget = RetryBudget(size=5)
    assert [budget.take() for _ in range(7)] == [True] * 5 + [False] * 2


def test_success_earns_a_share_of_a_retry() -> None:
    budget = RetryBudget(size=1, per_success=0.5)
    budget.take()
    budget.earn()
    assert not budget.take()
    budget.earn()
    assert budget.take()
