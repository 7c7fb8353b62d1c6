"""When a certificate is renewed, and that callers always trust the CA of the leaf."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhooks import certs, rotation
from webhooks.rotation import Chain, Schedule, advance, begin

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DAYS = Schedule(lifetime=timedelta(days=90), overlap=timedelta(minutes=2))


def after(**passed: float) -> datetime:
    return NOW + timedelta(**passed)


@pytest.fixture(scope="module")
def fresh() -> Chain:
    return begin(None, NOW, DAYS)


@pytest.fixture(scope="module")
def renewing(fresh: Chain) -> Chain:
    return advance(fresh, after(days=60), DAYS, is_published=True)


def test_first_chain_is_made_at_once(fresh: Chain) -> None:
    assert fresh.next is None
    assert fresh.current.is_valid(NOW)
    assert fresh.trusted == fresh.current.ca


def test_nothing_is_due_before_two_thirds_of_the_life(fresh: Chain) -> None:
    assert advance(fresh, after(days=59), DAYS, is_published=True) is fresh


def test_next_leaf_is_made_but_not_served_while_callers_learn_of_its_ca(
    fresh: Chain, renewing: Chain
) -> None:
    assert renewing.current == fresh.current
    assert renewing.next is not None
    assert renewing.trusted == fresh.current.ca + renewing.next.ca
    for now, is_published in ((after(days=60, seconds=119), True), (after(days=61), False)):
        assert advance(renewing, now, DAYS, is_published=is_published) is renewing


def test_next_leaf_is_served_after_the_overlap_and_the_old_ca_stays(renewing: Chain) -> None:
    served = advance(renewing, after(days=60, minutes=2), DAYS, is_published=True)
    assert served.current == renewing.next
    assert served.trusted == served.current.ca + renewing.current.ca


def test_old_ca_is_trusted_for_an_hour_more(renewing: Chain) -> None:
    served = advance(renewing, after(days=60, minutes=2), DAYS, is_published=True)
    assert advance(served, after(days=60, minutes=61), DAYS, is_published=True) is served
    left = advance(served, after(days=60, minutes=62), DAYS, is_published=True)
    assert left == Chain(served.current)


def test_old_ca_falls_out_when_the_renewal_after_begins(renewing: Chain) -> None:
    served = advance(renewing, after(days=61), DAYS, is_published=True)
    again = advance(served, after(days=121), DAYS, is_published=True)
    assert renewing.current.ca not in again.trusted


def test_a_secret_that_is_deleted_is_replaced_in_steps_from_the_leaf_that_is_served(
    fresh: Chain,
) -> None:
    begun = begin(fresh.current, after(days=1), DAYS)
    assert begun.next is not None
    assert (begun.current, begun.trusted) == (fresh.current, fresh.current.ca + begun.next.ca)
    assert advance(begun, after(days=1, seconds=119), DAYS, is_published=True) is begun
    replaced = advance(begun, after(days=1, minutes=2), DAYS, is_published=True)
    assert replaced == Chain(begun.next, fresh.current.ca)


def test_a_secret_that_is_deleted_after_its_leaf_has_expired_is_replaced_at_once(
    fresh: Chain,
) -> None:
    begun = begin(fresh.current, after(days=91), DAYS)
    assert begun.current.is_valid(after(days=91))
    assert begun.trusted == begun.current.ca


def test_expired_leaf_is_replaced_without_steps(fresh: Chain, renewing: Chain) -> None:
    assert advance(fresh, after(days=91), DAYS, is_published=True).current.is_valid(after(days=91))
    assert advance(renewing, after(days=91), DAYS, is_published=False).current == renewing.next


def test_leaf_from_a_future_that_the_clock_took_back_is_replaced(fresh: Chain) -> None:
    early = NOW - timedelta(days=30)
    assert advance(fresh, early, DAYS, is_published=True).current.is_valid(early)


def test_chain_is_read_from_a_secret_as_it_was_written(fresh: Chain, renewing: Chain) -> None:
    served = advance(renewing, after(days=61), DAYS, is_published=True)
    for chain in (fresh, renewing, served):
        assert rotation.from_data(rotation.to_data(chain)) == chain


def test_certificate_that_somebody_put_into_the_secret_is_taken() -> None:
    bundle = certs.make(now=NOW)
    data = {
        name: rotation.to_data(Chain(bundle))[name] for name in ("ca.crt", "tls.crt", "tls.key")
    }
    assert rotation.from_data(data) == Chain(bundle)


@pytest.mark.parametrize(
    "broken",
    [{}, {"tls.key": ""}, {"tls.crt": "bm90IGEgY2VydA=="}, {"tls.key": "%%%"}],
    ids=["nothing", "no key", "not a certificate", "not base64"],
)
def test_secret_without_a_whole_chain_is_made_anew(fresh: Chain, broken: dict[str, str]) -> None:
    data = rotation.to_data(fresh) | broken if broken else {}
    assert rotation.from_data(data) is None


@settings(max_examples=30)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_whatever_is_served_was_trusted_a_step_before(days: list[int]) -> None:
    """Callers that have the bundle of any earlier step trust the leaf, unless it had expired."""
    now, chain, known = NOW, begin(None, NOW, DAYS), b""
    for passed in days:
        known, before = chain.trusted, chain.current
        now += timedelta(days=passed)
        chain = advance(chain, now, DAYS, is_published=True)
        assert chain.current.ca in known or not before.is_valid(now)
        assert chain.trusted.count(b"BEGIN CERTIFICATE") <= 2
