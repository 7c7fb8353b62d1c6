"""What it costs that pods leave, and how two such costs compare: leaves of the kernels that choose.

A cost is compared as three integers, the first that differs decides. `high` is for pods that stop:
the tier of the queues that give, the highest rank that a victim's priority has in its project,
whether a queue ends below its floor, whether a workload goes whole, then milli-GPU-seconds lost.
`moved` is for pods that move: the highest rank, then milli-GPU-seconds lost. `low`: the number of
pods, the age of the oldest workload, the latest turn that a pod has in its workload.
"""

cdef enum:
    MOST_RANK = (1 << 7) - 1
    MOST_PODS = (1 << 8) - 1
    MOST_TURN = (1 << 7) - 1
    # Kinds of victims: one pod of a workload with surplus, one that moves, the first pod of a
    # workload that leaves whole, and the others of it.
    SINGLE = 0
    MOVE = 1
    WHOLE_WORKLOAD = 2
    FOLLOWER = 3


cdef struct Cost:
    int tier, rank, is_below, is_whole, moved_rank, count, turn
    long long lost, moved, age


cdef struct Price:
    long long high, moved, low


cdef struct Victim:
    # A pod that leaves, and what its queue gives with it.
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


cdef inline Price price_of(const Cost* cost) noexcept nogil:
    """All three integers."""
    return Price(high_of(cost), moved_of(cost), low_of(cost))


cdef inline bint is_cheaper(const Price* one, const Price* other) noexcept nogil:
    """Whether `one` is the cheaper."""
    if one.high != other.high:
        return one.high < other.high
    if one.moved != other.moved:
        return one.moved < other.moved
    return one.low < other.low


cdef inline bint is_less(const Cost* one, const Cost* other) noexcept nogil:
    """Whether `one` is the cheaper."""
    cdef Price mine = price_of(one), its = price_of(other)
    return is_cheaper(&mine, &its)


cdef inline void per_card(Cost* cost, int n_cards) noexcept nogil:
    """Divide what is lost by the number of cards that come free."""
    if n_cards > 1:
        cost.lost, cost.moved = cost.lost // n_cards, cost.moved // n_cards


cdef inline void add_cost(Cost* total, const Cost* more) noexcept nogil:
    """Both together."""
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
