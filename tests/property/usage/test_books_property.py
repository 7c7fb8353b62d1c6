"""Whatever is written, lost, repeated or taken over: the books come to what was held, exactly."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kube.errors import AlreadyExists, Conflict, Unavailable
from extender.state.model import Figures, PoolQuota, QueueView
from extender.usage.books import SETTLE_S, UsageBooks
from extender.usage.meter import UsageMeter
from tests.unit.usage.api_server import ApiServer
from tests.unit.usage.ledgers import revision, row

#: Ten minutes before midnight in UTC.
START_S = 20_000 * 86_400 - 600
QUOTA_MILLI = 1500
END_S = START_S + 1_200
USERS = {"p0": "ann", "p1": "bo", "p2": "", "p3": "ann"}


async def book(books: UsageBooks, now_s: int) -> None:
    try:
        await books.keep(now_s)
    except (Conflict, AlreadyExists, Unavailable) as error:
        books._fail(error)


def leader(api: ApiServer, meter: UsageMeter) -> UsageBooks:
    books = UsageBooks(api, meter)  # type: ignore[arg-type]
    quota = PoolQuota(gpu=Figures(quota=QUOTA_MILLI))
    books.queues = {"a": QueueView("a", pools={"default": quota})}
    return books


holds = st.lists(
    st.tuples(
        st.sampled_from(sorted(USERS)),
        st.sampled_from((250, 500, 1000)),
        st.integers(START_S, END_S - 100),
        st.integers(1, 900),
    ),
    max_size=4,
    unique_by=lambda each: each[0],
)


@settings(max_examples=40)
@given(
    held=holds,
    losses=st.lists(st.sampled_from(["", "", "before", "after"]), max_size=12),
    terms=st.sets(st.integers(1, 14), max_size=4),
)
def test_books_are_exact_whatever_writes_are_lost_and_leaders_change(
    held: list[tuple[str, int, int, int]], losses: list[str], terms: set[int]
) -> None:
    asyncio.run(_play(held, losses, terms))


async def _play(held: list[tuple[str, int, int, int]], losses: list[str], terms: set[int]) -> None:
    api, meter = ApiServer([]), UsageMeter(USERS.get)
    books = leader(api, meter)
    # The books begin with a hold of another project, so that there is a record to go on from.
    first = row("q", 1000, START_S - 100, index=3, project="b")
    meter.observe(revision(START_S - 100, first, node="other"), 0)
    await book(books, START_S - 50)
    await book(books, START_S)
    api._losses = losses
    times = {since for _, _, since, _ in held} | {since + took for _, _, since, took in held}
    seen = START_S - 1
    for at, now_s in enumerate(range(START_S + 60, END_S + 900, 60)):
        for changed_at in sorted(t for t in times if seen < t <= now_s):
            rows = [
                row(uid, milli, since, index=index)
                for index, (uid, milli, since, took) in enumerate(held)
                if since <= changed_at < since + took
            ]
            meter.observe(revision(changed_at, *rows), now_s)
        seen = now_s
        if at in terms:
            books = leader(api, meter)
        await book(books, now_s)
    for _ in range(len(losses) + 2):
        await book(books, END_S + 900)
    assert _written(api, "Project", "a") == _expected(held)
    pools = _written(api, "NodePool", "default")
    assert sum(pools.values()) == sum(_expected(held).values()) + 1000 * (
        END_S + 900 - SETTLE_S - _begin(api)
    )
    assert _over(api) == _expected_over(held)


def _begin(_api: ApiServer) -> int:
    """When the books began: the first look, less what is left for the next booking."""
    return START_S - 50 - SETTLE_S


def _written(api: ApiServer, account: str, name: str) -> Counter[tuple[str, str]]:
    """Milli-GPU-seconds by (day, user)."""
    sums: Counter[tuple[str, str]] = Counter()
    for each in api.stored.values():
        if (each.spec.account, each.spec.name) == (account, name):
            for line in each.spec.lines:
                sums[each.spec.day, line.user] += sum(line.held)
    return sums


def _over(api: ApiServer) -> int:
    specs = (each.spec for each in api.stored.values())
    return sum(sum(over.held) for spec in specs if spec.name == "a" for over in spec.over_quota)


def _expected(held: list[tuple[str, int, int, int]]) -> Counter[tuple[str, str]]:
    """The same, second by second."""
    sums: Counter[tuple[str, str]] = Counter()
    for uid, milli, since, took in held:
        for second in range(since, since + took):
            day = "2024-10-03" if second < START_S + 600 else "2024-10-04"
            sums[day, USERS[uid]] += milli
    return sums


def _expected_over(held: list[tuple[str, int, int, int]]) -> int:
    levels: Counter[int] = Counter()
    for _, milli, since, took in held:
        for second in range(since, since + took):
            levels[second] += milli
    return sum(max(0, level - QUOTA_MILLI) for level in levels.values())
