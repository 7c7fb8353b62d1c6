"""Past usage decays by half in every half-life, whenever it is read."""

from extender.policy.queues.usage import advance, as_ppm, decay

WEEK_S = 7 * 24 * 3600


def test_half_is_left_after_a_half_life() -> None:
    assert decay((8000, 4000, 1000), WEEK_S, WEEK_S) == (4000, 2000, 500)
    assert decay((8000, 0, 0), 3 * WEEK_S, WEEK_S) == (1000, 0, 0)


def test_half_of_a_half_life_leaves_the_root_of_one_half() -> None:
    assert decay((1_000_000, 0, 0), 50, 100) == (707_107, 0, 0)


def test_nothing_fades_in_no_time() -> None:
    assert decay((123, 45, 6), 0, WEEK_S) == (123, 45, 6)


def test_very_old_usage_is_forgotten() -> None:
    assert decay((10**15, 10**15, 10**15), 1000 * WEEK_S, WEEK_S) == (0, 0, 0)


def test_what_is_held_for_ever_stands_for_the_mean_life() -> None:
    # An account of one GPU that is held without end tends to half-life / ln 2.
    gpu, _, _ = advance((0, 0, 0), (1000, 0, 0), 100 * WEEK_S, WEEK_S)
    assert gpu == round(1000 * WEEK_S / 0.6931471805599453)


def test_an_hour_counts_almost_whole_in_a_week() -> None:
    gpu, _, _ = advance((0, 0, 0), (1000, 0, 0), 3600, WEEK_S)
    assert 0.995 < gpu / 3_600_000 < 1


def test_part_of_the_pool_is_in_millionths() -> None:
    assert as_ppm((250, 10, 7), (1000, 0, 7)) == (250_000, 0, 1_000_000)
