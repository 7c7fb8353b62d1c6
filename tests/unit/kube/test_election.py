import asyncio

import pytest

from extender.kube.election import Leadership, Terms
from extender.kube.errors import NotLeading

pytestmark = pytest.mark.looptime


async def test_leadership_ends_when_it_was_not_renewed_in_time() -> None:
    clock = asyncio.get_running_loop().time
    leadership = Leadership(7, clock(), renew_s=10)
    await asyncio.sleep(9.9)
    leadership.check()
    await asyncio.sleep(0.2)
    with pytest.raises(NotLeading):
        leadership.check()


async def test_a_renewal_counts_from_its_start_not_from_its_answer() -> None:
    clock = asyncio.get_running_loop().time
    leadership = Leadership(7, clock(), renew_s=10)
    await asyncio.sleep(2)
    started = clock()
    await asyncio.sleep(4)
    leadership.extend(started)
    assert leadership.left_s == pytest.approx(6)


async def test_an_ended_leadership_never_comes_back() -> None:
    clock = asyncio.get_running_loop().time
    leadership = Leadership(7, clock(), renew_s=10)
    leadership.end()
    leadership.extend(clock())
    assert not leadership.is_leading


@pytest.mark.parametrize("terms", [(15, 15, 2), (15, 10, 10), (10, 15, 2), (15, 10, 0)])
def test_terms_under_which_two_could_lead_are_refused(terms: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="retry_s < renew_s < duration_s"):
        Terms(*terms)


def test_two_renewals_fit_before_the_hold_ends() -> None:
    terms = Terms()
    assert terms.retry_s + 2 * terms.request_s <= terms.renew_s
