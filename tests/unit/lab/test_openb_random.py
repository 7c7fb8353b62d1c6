"""Go's random numbers, compared with streams of real Go programs."""

from extender.lab.openb.gorandom import GoRandom


def test_first_number_of_seed_one_is_gos() -> None:
    assert GoRandom(1).int63() == 5577006791947779410


def test_small_numbers_are_those_of_gos_tour() -> None:
    rng = GoRandom(1)
    assert [rng.intn(100) for _ in range(6)] == [81, 87, 47, 59, 81, 18]


def test_seeds_that_are_equal_modulo_a_mersenne_prime_give_the_same_numbers() -> None:
    assert GoRandom(7).int63() == GoRandom(7 + 2**31 - 1).int63()
    assert GoRandom(0).int63() != GoRandom(1).int63()


def test_shuffle_and_perm_keep_every_item() -> None:
    items = list(range(1000))
    GoRandom(42).shuffle(items)
    assert items != list(range(1000))
    assert sorted(items) == list(range(1000))
    assert sorted(GoRandom(42).perm(1000)) == list(range(1000))


def test_numbers_below_a_bound_stay_below_it() -> None:
    rng = GoRandom(3)
    for n in (1, 2, 3, 8, 1000, 2**30 + 1):
        assert all(0 <= rng.intn(n) < n for _ in range(50))
