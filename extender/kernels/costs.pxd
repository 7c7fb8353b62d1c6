"""The cost of victims, and the comparison of two costs: leaf functions of the victim kernels.

A cost is compared as three integers, of which the first that differs decides. `high` is for evicted
pods: the tier of their queues, the highest rank of a victim's priority in its project, whether a
queue ends below its floor, whether a workload is evicted whole, then milli-GPU-seconds lost.
`moved` is for moved pods: the highest rank, then milli-GPU-seconds lost. `low`: the number of pods,
the age of the oldest workload, the latest turn of a pod in its workload.
"""

cdef enum:
    MOST_RANK = (1 << 7) - 1
    MOST_PODS = (1 << 8) - 1
    MOST_TURN = (1 << 7) - 1
    # Kinds of victims: a surplus pod, a moved pod, the first pod of a workload that is evicted
    # whole, and the other pods of that workload.
    SINGLE = 0
    MOVE = 1
    WHOLE_WORKLOAD = 2
    FOLLOWER = 3


cdef struct Cost:
    int tier, rank, is_below, is_whole, moved_rank, count, turn
    long long lost, moved, age


cdef struct PackedCost:
    long long high, moved, low


cdef struct Victim:
    # A victim, and what its queue loses with it.
    int pod, kind
    bint is_tested
    Cost cost
    long long given[3]


cdef inline Cost no_cost() noexcept nogil:
    return Cost(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


cdef inline long long high_of(const Cost* cost) noexcept nogil:
    """The first of the three integers."""
    return (
        (<long long>cost.tier << 61) | (<long long>min(cost.rank, <int>MOST_RANK) << 54)
        | (<long long>cost.is_below << 53) | (<long long>cost.is_whole << 52)
        | min(cost.lost, (<long long>1 << 52) - 1)
    )


cdef inline long long moved_of(const Cost* cost) noexcept nogil:
    """The second of the three integers."""
    return (
        (<long long>min(cost.moved_rank, <int>MOST_RANK) << 52)
        | min(cost.moved, (<long long>1 << 52) - 1)
    )


cdef inline long long low_of(const Cost* cost) noexcept nogil:
    """The last of the three integers."""
    return (
        (<long long>min(cost.count, <int>MOST_PODS) << 40)
        | (min(cost.age, (<long long>1 << 33) - 1) << 7) | min(cost.turn, <int>MOST_TURN)
    )


cdef inline PackedCost packed(const Cost* cost) noexcept nogil:
    """The cost as three integers."""
    return PackedCost(high_of(cost), moved_of(cost), low_of(cost))


cdef inline bint is_cheaper(const PackedCost* one, const PackedCost* other) noexcept nogil:
    """Whether `one` is the cheaper."""
    if one.high != other.high:
        return one.high < other.high
    if one.moved != other.moved:
        return one.moved < other.moved
    return one.low < other.low


cdef inline bint is_less(const Cost* one, const Cost* other) noexcept nogil:
    """Whether `one` is the cheaper."""
    cdef PackedCost mine = packed(one), its = packed(other)
    return is_cheaper(&mine, &its)


cdef inline void per_card(Cost* cost, int n_cards) noexcept nogil:
    """Divide the lost milli-GPU-seconds by the number of cards that become free."""
    if n_cards > 1:
        cost.lost, cost.moved = cost.lost // n_cards, cost.moved // n_cards


cdef inline void add_cost(Cost* total, const Cost* more) noexcept nogil:
    """Add `more` to `total`."""
    total.tier = max(total.tier, more.tier)
    total.rank = max(total.rank, more.rank)
    total.moved_rank = max(total.moved_rank, more.moved_rank)
    total.is_below |= more.is_below
    total.is_whole |= more.is_whole
    total.age = max(total.age, more.age)
    total.turn = max(total.turn, more.turn)
    total.count += more.count
    total.lost += more.lost
    total.moved += more.moved
