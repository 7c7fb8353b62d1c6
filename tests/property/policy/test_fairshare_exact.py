"""Fair shares against a solver in rational numbers, written from the definition alone.

The definition, level by level: quota first, as far as it is wanted (in proportion to quotas where
they exceed what there is); then the rest rank by rank in proportion to weights, which past use
bends; no queue gets more than it wants. Parts of queues that want more are rounded down to whole
granules, and what that leaves goes to the largest remainders, ties to rank and age.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from math import gcd

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.policy.queues.fairshare import set_shares
from extender.policy.queues.queue import Queue, add
from extender.policy.queues.tree import PoolQueues
from extender.state.model import CPU, GPU, UNLIMITED, Figures, PoolQuota

RUN = settings(max_examples=300)
#: A GPU in milli: what shares are rounded to, save where there is fractional work.
WHOLE = 1000


@dataclass
class Want:
    """A queue as the definition sees it, for one resource."""

    name: str
    age: int
    quota: int
    limit: int
    weight: int
    used_ppm: int
    rank: int
    granule: int
    children: "list[Want]" = field(default_factory=list)
    has: int = 0
    has_fixed: int = 0
    asks: int = 0
    asks_fixed: int = 0
    share: int = 0

    def fixed(self) -> int:
        """What of its non-preemptible work could run."""
        inside = sum(child.fixed() for child in self.children)
        wanted = inside if self.children else self.has_fixed + self.asks_fixed
        return min(self.limit, max(self.all_fixed(), min(wanted, self.quota)))

    def all_fixed(self) -> int:
        return sum(child.all_fixed() for child in self.children) + self.has_fixed

    def demand(self) -> int:
        other = sum(child.demand() - child.fixed() for child in self.children)
        other += self.has + self.asks - self.has_fixed - self.asks_fixed
        return min(self.limit, self.fixed() + other)


def solve(
    wants: list[Want], total: int, usage_weight: Fraction, capacity: int | None = None
) -> None:
    """Set the shares of the queues of one parent and of all below them."""
    capacity = total if capacity is None else capacity
    wants = sorted(wants, key=lambda want: (want.rank, want.age, want.name))
    guaranteed = [min(want.quota, want.demand()) for want in wants]
    if sum(guaranteed) > total:
        stated = [w.quota for w in wants if w.quota < UNLIMITED and min(w.quota, w.demand())]
        most = max([total, 1, *stated])
        parts = [Fraction(min(want.quota, most)) for want in wants]
        guaranteed = apportion(total, wants, parts, guaranteed)
    for want, amount in zip(wants, guaranteed, strict=True):
        want.share = amount
    left = total - sum(guaranteed)
    for _, group in groupby(wants, key=lambda want: want.rank):
        left = share_out(list(group), left, usage_weight, capacity)
    for want in wants:
        solve(want.children, want.share, usage_weight, capacity)


def share_out(group: list[Want], left: int, usage_weight: Fraction, capacity: int) -> int:
    """Give what is left to queues of one rank that want more; returns what then is left.

    Past use counts as a part of what was left, in millionths, and only beyond the queue's quota.
    """
    whole = left
    while left > 0:
        hungry = [want for want in group if want.weight and want.demand() > want.share]
        if not hungry:
            break
        total = sum(want.weight for want in hungry)
        plain = [Fraction(want.weight, total) for want in hungry]
        beyond = [max(0, want.used_ppm * capacity - want.quota * 10**6) for want in hungry]
        used = [Fraction(min(10**6, each // whole), 10**6) for each in beyond]
        bent = [
            max(Fraction(0), w + usage_weight * (w - u)) for w, u in zip(plain, used, strict=True)
        ]
        rooms = [want.demand() - want.share for want in hungry]
        grants = apportion(left, hungry, bent if any(bent) else plain, rooms)
        for want, grant in zip(hungry, grants, strict=True):
            want.share += grant
        left -= sum(grants)
    return left


def apportion(
    total: int, wants: list[Want], weights: list[Fraction], rooms: list[int]
) -> list[int]:
    """Whole parts of `total` in proportion to the weights, none above its room."""
    claims = [ix for ix, weight in enumerate(weights) if weight and rooms[ix]]
    level = level_of(Fraction(total), [(weights[ix], rooms[ix]) for ix in claims])
    exact = [
        min(Fraction(room), level * weight) for room, weight in zip(rooms, weights, strict=True)
    ]
    got = [0] * len(wants)
    for ix in claims:
        granule = wants[ix].granule
        is_content = exact[ix] == rooms[ix]
        got[ix] = rooms[ix] if is_content else int(exact[ix] // granule) * granule
    left = min(total, sum(rooms[ix] for ix in claims)) - sum(got)
    by_remainder = sorted(claims, key=lambda ix: (-(exact[ix] - got[ix]), ix))
    is_first = True
    while left > 0:
        for ix in by_remainder:
            step = min(wants[ix].granule if is_first else WHOLE, rooms[ix] - got[ix], left)
            got[ix] += step
            left -= step
        is_first = False
    return got


def level_of(total: Fraction, claims: list[tuple[Fraction, int]]) -> Fraction:
    """The height to which `total` fills vessels as wide as the weights, each up to its room."""
    level = Fraction(0)
    for weight, room in sorted(claims, key=lambda claim: claim[1] / claim[0]):
        width = sum(w for w, r in claims if r / w > level)
        if width == 0 or (room / weight - level) * width >= total:
            break
        total -= (room / weight - level) * width
        level = room / weight
    width = sum(w for w, r in claims if r / w > level)
    return level + total / width if width else level


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> list[Want]:
    """Queues of one parent with all below them; leaves hold and ask for something."""
    found = []
    for at in range(draw(st.integers(1, 4))):
        children = draw(trees(depth - 1)) if depth > 1 and draw(st.booleans()) else []
        amounts = st.integers(0, 8).map(lambda gpus: gpus * 1000) | st.integers(0, 6000)
        want = Want(
            name=f"{depth}-{at}-{draw(st.integers(0, 10**6))}",
            age=draw(st.integers(0, 3)),
            quota=draw(st.just(UNLIMITED) | amounts),
            limit=draw(st.just(UNLIMITED) | st.just(UNLIMITED) | amounts),
            weight=draw(st.integers(0, 5)),
            used_ppm=draw(st.just(0) | st.integers(0, 10**6)),
            rank=draw(st.integers(0, 2)),
            granule=WHOLE,
            children=children,
        )
        if not children:
            want.has, want.asks = draw(amounts), draw(amounts)
            want.has_fixed = draw(st.sampled_from([0, 0, want.has]))
            want.asks_fixed = draw(st.sampled_from([0, 0, want.asks]))
        own = draw(st.sampled_from([WHOLE, WHOLE, 500, 250, 100, 1]))
        want.granule = gcd(own, *(child.granule for child in children))
        found.append(want)
    return found


def queues_of(wants: list[Want], capacity: int, resource: int, is_reversed: bool) -> PoolQueues:
    """The same as the policy's own queues."""
    pool = PoolQueues("default")
    pool.capacity[resource] = capacity

    def grow(want: Want, parent: Queue | None) -> None:
        figures = Figures(want.quota, want.limit, want.weight, want.used_ppm)
        quota = PoolQuota(gpu=figures, rank=want.rank)
        if resource == CPU:
            quota = PoolQuota(cpu=figures, rank=want.rank)
        queue = Queue(want.name, parent, want.age, quota)
        queue.granule = want.granule
        pool.by_name[want.name] = queue
        for of, amount in (
            ("allocated", want.has),
            ("allocated_np", want.has_fixed),
            ("pending", want.asks),
            ("pending_np", want.asks_fixed),
        ):
            amounts = (amount, 0, 0) if resource == GPU else (0, amount, 0)
            for each in queue.chain:
                add(getattr(each, of), amounts)
        for child in want.children[:: -1 if is_reversed else 1]:
            grow(child, queue)

    for want in wants[:: -1 if is_reversed else 1]:
        grow(want, None)
    pool.roots = [queue for queue in pool.by_name.values() if queue.parent is None]
    return pool


def everyone(wants: list[Want]) -> list[Want]:
    return [each for want in wants for each in (want, *everyone(want.children))]


def unique(wants: list[Want]) -> bool:
    names = [want.name for want in everyone(wants)]
    return len(names) == len(set(names))


@RUN
@given(
    trees().filter(unique),
    st.integers(0, 40).map(lambda gpus: gpus * 1000) | st.integers(0, 40_000),
    st.sampled_from([0, 0, 500, 1000, 3000]),
    st.booleans(),
)
def test_shares_are_those_of_the_exact_solver(
    wants: list[Want], capacity: int, usage_weight_milli: int, is_reversed: bool
) -> None:
    solve(wants, capacity, Fraction(usage_weight_milli, 1000))
    queues = queues_of(wants, capacity, GPU, is_reversed)
    set_shares(queues, usage_weight_milli)
    shares = {name: queue.share[GPU] for name, queue in queues.by_name.items()}
    assert shares == {want.name: want.share for want in everyone(wants)}
    check_sums(wants, capacity)


@RUN
@given(trees().filter(unique), st.integers(0, 40_000), st.booleans())
def test_cpu_is_divided_by_the_same_rule_to_the_milli(
    wants: list[Want], capacity: int, is_reversed: bool
) -> None:
    for want in everyone(wants):
        want.granule = 1
    solve(wants, capacity, Fraction(0))
    queues = queues_of(wants, capacity, CPU, is_reversed)
    set_shares(queues)
    shares = {name: queue.share[CPU] for name, queue in queues.by_name.items()}
    assert shares == {want.name: want.share for want in everyone(wants)}


def check_sums(wants: list[Want], total: int) -> None:
    """No share passes demand or limit; all that is wanted is given where every queue has a weight,
    on each level."""
    assert all(0 <= want.share <= min(want.demand(), want.limit) for want in wants)
    given_out, demand = sum(want.share for want in wants), sum(want.demand() for want in wants)
    assert given_out <= total
    if all(want.weight for want in wants):
        assert given_out == min(total, demand)
    for want in wants:
        if want.children:
            check_sums(want.children, want.share)
