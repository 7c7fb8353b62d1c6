"""Gates of containers with several cards open on all of them or on none."""

from gpu_shim.protocol.wire import Gate
from tests.unit.gpu_shim.scheduler_bench import BEGIN, LEASE, MS, Bench


def test_a_gang_is_opened_on_all_its_cards_or_on_none(is_ahead: bool) -> None:
    bench = Bench(("g", 500, 1000), cards="xy", is_ahead=is_ahead)
    bench.enter("a", 500, 1000, "x")
    bench.enter("b", 500, 1000, "y")
    wanted = ((0, "x"), (0, "y"), (1, "x"), (2, "y"))
    for key, card in wanted:
        bench.want(key, card)
    held = 0
    for _ in range(100):
        bench.wait()
        for key, card in wanted:
            bench.drain(key, card)
        on_x, on_y = bench.open_on("x"), bench.open_on("y")
        assert len(on_x) <= 1
        assert len(on_y) <= 1
        assert ("g" in on_x) == ("g" in on_y)
        held += "g" in on_x
    assert held > 20


def gang(is_ahead: bool, *others: str) -> Bench:
    """A container of cards x and y, process 0, and others on the named cards, all with work."""
    bench = Bench(("g", 500, 1000), cards="xy", is_ahead=is_ahead)
    for key, card in enumerate(others):
        bench.enter(f"on-{card}", 500, 1000, card)
        bench.want(key + 1, card)
    for card in "xy":
        bench.want(0, card)
    return bench


def test_a_gang_of_cards_that_no_other_wants_renews_without_closing(is_ahead: bool) -> None:
    bench = gang(is_ahead)
    before = [bench.gate("g", card) for card in "xy"]
    for _ in range(20):
        bench.wait()
    assert bench.now > BEGIN + 3 * LEASE
    assert [bench.gate("g", card) for card in "xy"] == before
    assert before[0][0] == Gate.OPEN


def until_begun(bench: Bench) -> None:
    """Until the gang has a lease; other containers drain at once."""
    while bench.gate("g", "x")[0] == Gate.CLOSED:
        bench.wait()
        for key, (name, _) in enumerate(bench.processes[1:], 1):
            bench.drain(key, bench.cards[name])


def until_closed(bench: Bench) -> None:
    """Until the gang's lease has ended."""
    until_begun(bench)
    while bench.gate("g", "x")[0] != Gate.CLOSED:
        bench.wait()


def test_no_card_of_a_gang_is_given_away_before_all_have_drained(is_ahead: bool) -> None:
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    bench.drain(0, "y")
    assert bench.open_on("y") == set()
    bench.drain(0, "x")
    assert bench.open_on("x") == {"on-x"}
    assert bench.open_on("y") == {"on-y"}


def test_a_lease_that_ends_inside_a_collective_lets_the_peer_in(is_ahead: bool) -> None:
    """The kernel on x waits for its peer, which has not been launched on y yet."""
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    ended = bench.now
    bench.drain(0, "y")
    bench.wait()
    assert bench.now == ended + 20 * MS
    assert bench.open_on("y") == {"g"}
    bench.wait()
    assert bench.now == ended + 25 * MS
    assert bench.open_on("y") == set()
    for card in "xy":
        bench.drain(0, card)
    assert bench.open_on("y") == {"on-y"}
    assert bench.scheduler.cards["x"].n_late == 0


def test_only_peers_that_wait_are_let_in_and_never_later_where_that_helped(is_ahead: bool) -> None:
    """The card with the waiting kernel gets no further launch, so that both cards drain."""
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    bench.drain(0, "y")
    bench.wait()
    assert bench.open_on("y") == {"g"}
    assert bench.open_on("x") == set()
    bench.drain(0, "x")
    bench.wait()
    # The peer has launched its part of the next collective, too; the first has not yet.
    assert bench.open_on("x") == bench.open_on("y") == set()
    closed = bench.now
    bench.wait()
    assert bench.now == closed + 20 * MS
    assert bench.open_on("x") == {"g"}
    assert bench.open_on("y") == set()


def test_a_gang_that_pauses_and_goes_on_before_it_has_drained_keeps_its_lease(
    is_ahead: bool,
) -> None:
    """Its gates are not left shut for the rest of a lease that it is charged for."""
    bench = gang(is_ahead, "x", "y")
    until_begun(bench)
    lease = bench.scheduler.node.cards["x"].holder
    assert lease is not None
    bench.now += 60 * MS
    for say in (bench.yields, bench.want):
        for card in "xy":
            say(0, card)
    assert bench.open_on("x") == bench.open_on("y") == {"g"}
    assert bench.deadline("g", "x") == bench.deadline("g", "y") == lease.until_ns


def test_a_gang_that_has_work_again_while_its_peer_is_let_in_keeps_its_lease(
    is_ahead: bool,
) -> None:
    bench = gang(is_ahead, "x", "y")
    until_begun(bench)
    lease = bench.scheduler.node.cards["x"].holder
    assert lease is not None
    bench.now += 60 * MS
    for card in "xy":
        bench.yields(0, card)
    bench.wait()
    assert bench.deadline("g", "y") < lease.until_ns
    bench.want(0, "y")
    assert bench.deadline("g", "x") == bench.deadline("g", "y") == lease.until_ns


def test_a_gang_that_never_drains_is_overtaken_as_ever(is_ahead: bool) -> None:
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    ended, n_peeks = bench.now, 0
    while "on-x" not in bench.open_on("x"):
        bench.wait()
        n_peeks += "g" in bench.open_on("x")
        assert bench.now <= ended + 2_010 * MS
    assert n_peeks <= 8
    assert bench.now >= ended + 2_000 * MS
    assert bench.scheduler.cards["x"].n_late == 1
