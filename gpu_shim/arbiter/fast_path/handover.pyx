# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# distutils: sources = gpu_shim/native/pages.c gpu_shim/native/table.c
"""Hands a card from one container to the next as the scheduler planned it, without Python.

When a lease ends, the holder's gate closes; when every process that used the card has drained, the
successor's gate opens. Nothing is chosen here: without a plan, or when a plan is too late, the
scheduler decides. The only I/O is setting gates. `Handover` is driven by an explicit time, so tests
need no thread; `EventLoop` drives it by messages and the clock.
"""

from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from gpu_shim.arbiter.fast_path cimport linux
from gpu_shim.arbiter.fast_path.gates cimport advance, drained, is_handing_over, set_gate
from gpu_shim.arbiter.fast_path.slots cimport one_more, take_event

from gpu_shim.arbiter.fast_path.events import CardState, Events
from gpu_shim.arbiter.fast_path.events import Handover as Done


cdef uint64_t clock_ns() noexcept nogil:
    """The clock of all gates and deadlines."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec


cdef class Handover:
    """The state of all cards of a node.

    Containers and connections are known by the numbers of their slots, which stay the same until
    they are removed. The caller owns descriptors and pages and keeps them until then. Times are
    nanoseconds of the monotonic clock; 0 stands for now.
    """

    def __cinit__(self):
        linux.pthread_mutex_init(&self.lock, NULL)
        for number in range(MAX_CARDS):
            self.state.cards[number].holder = self.state.cards[number].successor = -1

    def __dealloc__(self):
        free(self.state.containers)
        free(self.state.connections)

    # -- containers and connections --------------------------------------------------------------

    def add_container(self, size_t grants, cards):
        """The slot of a new container: the address of its grants, and its cards' numbers."""
        cdef ContainerSlot new
        cdef int slot = 0
        memset(&new, 0, sizeof(new))
        new.grants, new.n_cards = <grants_t *>grants, len(cards)
        if not 0 < new.n_cards <= BALLAST_MAX_CARDS:
            raise ValueError(f"a container of {len(cards)} cards")
        for at, card in enumerate(cards):
            if not 0 <= card < MAX_CARDS:
                raise ValueError(f"card {card} of {MAX_CARDS}")
            new.card[at] = card
        linux.pthread_mutex_lock(&self.lock)
        while slot < self.state.n_containers and self.state.containers[slot].grants:
            slot += 1
        if slot == self.state.n_containers:
            slot = one_more(<void **>&self.state.containers, &self.state.n_containers,
                            sizeof(ContainerSlot))
        if slot >= 0:
            self.state.containers[slot] = new
        linux.pthread_mutex_unlock(&self.lock)
        if slot < 0:
            raise MemoryError
        return slot

    def remove_container(self, int slot):
        """Remove a container, its connections, its gates, and every plan that names it."""
        cdef CardSlot *card
        for connection in range(self.state.n_connections):
            if self.state.connections[connection].container == slot:
                self.remove_connection(connection)
        linux.pthread_mutex_lock(&self.lock)
        self.state.containers[slot].grants = NULL
        for number in range(MAX_CARDS):
            card = &self.state.cards[number]
            if card.holder == slot or card.successor == slot:
                card.close_ns, card.successor = 0, -1
            if card.holder == slot:
                card.holder, card.gate = -1, BALLAST_CLOSED
                card.closed_ns, card.n_awaited = 0, 0
        linux.pthread_mutex_unlock(&self.lock)

    def add_connection(self, int container, int fd=-1):
        """The slot of a new process of the container; `fd` is its socket."""
        cdef Connection new
        cdef int slot = 0
        memset(&new, 0, sizeof(new))
        new.fd, new.container = fd, container
        linux.pthread_mutex_lock(&self.lock)
        while slot < self.state.n_connections and self.state.connections[slot].container >= 0:
            slot += 1
        if slot == self.state.n_connections:
            slot = one_more(<void **>&self.state.connections, &self.state.n_connections,
                            sizeof(Connection))
        if slot >= 0:
            self.state.connections[slot] = new
        linux.pthread_mutex_unlock(&self.lock)
        if slot < 0:
            raise MemoryError
        return slot

    def remove_connection(self, int slot, uint64_t now_ns=0):
        """Remove a connection; its socket may be closed then."""
        linux.pthread_mutex_lock(&self.lock)
        if self.state.connections[slot].container >= 0:
            self._unwatch(self.state.connections[slot].fd)
            self._end(slot, now_ns or clock_ns())
            self.state.connections[slot].container = -1
            self.state.connections[slot].has_event = False
        linux.pthread_mutex_unlock(&self.lock)

    # -- what happens -----------------------------------------------------------------------------

    def receive(self, int connection, bytes data, uint64_t now_ns):
        """Take in a message; False, and the process counts as ended, if it may not send that."""
        cdef message_t message
        cdef bint is_allowed = len(data) == sizeof(message)
        linux.pthread_mutex_lock(&self.lock)
        if is_allowed:
            memcpy(&message, <const char *>data, sizeof(message))
            is_allowed = self._receive(connection, &message, now_ns)
        if not is_allowed:
            self._end(connection, now_ns)
        self._advance(now_ns)
        linux.pthread_mutex_unlock(&self.lock)
        return bool(is_allowed)

    def advance(self, uint64_t now_ns):
        """Carry out all plans as far as their time has come."""
        linux.pthread_mutex_lock(&self.lock)
        self._advance(now_ns)
        linux.pthread_mutex_unlock(&self.lock)

    def next_ns(self):
        """When `advance` must be called again even if no message arrives; 0: never."""
        linux.pthread_mutex_lock(&self.lock)
        next_ns = self._next_ns()
        linux.pthread_mutex_unlock(&self.lock)
        return next_ns

    cdef bint _receive(
        self, int connection, const message_t *message, uint64_t now_ns
    ) noexcept nogil:
        cdef Connection *own = &self.state.connections[connection]
        cdef ContainerSlot *of = &self.state.containers[own.container]
        cdef uint32_t bit
        cdef CardSlot *card
        cdef bint is_late
        if message.slot or message.card >= of.n_cards:
            return False
        bit = <uint32_t>1 << message.card
        card = &self.state.cards[of.card[message.card]]
        is_late = card.holder != own.container
        if message.kind == BALLAST_WANT:
            own.wanted |= bit
            own.used |= bit
        elif message.kind == BALLAST_YIELD:
            own.wanted &= ~bit
        elif message.kind != BALLAST_DRAINED:
            return False
        elif message.value == of.generation[message.card]:
            drained(&self.state, connection, message.card, now_ns)
        own.has_event = True
        # While a plan is carried out, the scheduler need not hear of every process that drained; of
        # one that drained after its container was overtaken it must, since that is charged.
        if message.kind != BALLAST_DRAINED or is_late or not is_handing_over(card):
            self.state.has_events = True
        return True

    cdef void _end(self, int connection, uint64_t now_ns) noexcept nogil:
        """The process has ended, and with it everything that it ran."""
        cdef Connection *own = &self.state.connections[connection]
        cdef int at
        own.wanted = 0
        for at in range(self.state.containers[own.container].n_cards):
            drained(&self.state, connection, at, now_ns)
        own.is_ended = own.has_event = self.state.has_events = True

    cdef void _advance(self, uint64_t now_ns) noexcept nogil:
        cdef int number
        for number in range(MAX_CARDS):
            advance(&self.state, number, now_ns)

    cdef void _unwatch(self, int fd) noexcept nogil:
        """Wait for messages of this socket no more; there is nothing that waits here."""

    cdef void _heard(self) noexcept nogil:
        """The scheduler hears of all events now; there is nothing that called it here."""

    cdef uint64_t _next_ns(self) noexcept nogil:
        cdef uint64_t found = 0, then
        cdef int number
        if self.state.is_deciding:
            return 0
        for number in range(MAX_CARDS):
            then = self.state.cards[number].close_ns
            if is_handing_over(&self.state.cards[number]):
                then = self.state.cards[number].latest_ns + 1
            if then and (not found or then < found):
                found = then
        return found

    # -- the scheduler's side ----------------------------------------------------------------------

    def begin_decision(self, uint64_t now_ns=0):
        """What happened since the last decision. No plan is carried out until `end_decision`."""
        cdef CardSlot cards[MAX_CARDS]
        cdef Connection each
        cdef int number, slot = -1
        linux.pthread_mutex_lock(&self.lock)
        self.state.is_deciding, self.state.has_events = True, False
        self._heard()
        now_ns = now_ns or clock_ns()
        cards = self.state.cards
        for number in range(MAX_CARDS):
            self.state.cards[number].did_close_ns = self.state.cards[number].did_open_ns = 0
        linux.pthread_mutex_unlock(&self.lock)
        # No Python object is made under the lock: the thread would wait for the interpreter.
        done = [
            Done(number, cards[number].did_close_ns, cards[number].did_open_ns,
                 cards[number].did_drain_ns)
            for number in range(MAX_CARDS)
            if cards[number].did_close_ns or cards[number].did_open_ns
        ]
        containers, ended = set(), []
        while True:
            linux.pthread_mutex_lock(&self.lock)
            slot = take_event(&self.state, slot + 1, &each)
            linux.pthread_mutex_unlock(&self.lock)
            if slot < 0:
                return Events(now_ns, done, sorted(containers), ended)
            containers.add(each.container)
            if each.is_ended:
                ended.append((each.container, slot))

    def end_decision(self, uint64_t now_ns=0):
        """Carry out plans again; what is due happens now."""
        linux.pthread_mutex_lock(&self.lock)
        self.state.is_deciding = False
        self._advance(now_ns or clock_ns())
        linux.pthread_mutex_unlock(&self.lock)

    def set_gate(self, int container, int at, uint32_t gate, uint64_t deadline_ns,
                 uint64_t now_ns=0):
        """Set one gate of a container now; its new generation."""
        linux.pthread_mutex_lock(&self.lock)
        generation = set_gate(&self.state, container, at, gate, deadline_ns, now_ns or clock_ns())
        linux.pthread_mutex_unlock(&self.lock)
        return generation

    def plan(self, int number, plan):
        """Say what happens next on a card (see `events.Plan`); None: nothing."""
        cdef CardSlot *card = &self.state.cards[number]
        cdef uint64_t close_ns = 0, latest_ns = 0, run_ns = 0
        cdef int successor = -1, successor_at = 0
        cdef bint is_renewal = False
        if plan is not None:
            close_ns, latest_ns, run_ns = plan.close_ns, plan.latest_ns, plan.run_ns
            successor, successor_at = plan.successor
            is_renewal = plan.is_renewal
        linux.pthread_mutex_lock(&self.lock)
        card.close_ns, card.latest_ns, card.run_ns = close_ns, latest_ns, run_ns
        card.successor, card.successor_at = successor, successor_at
        card.is_renewal = is_renewal
        linux.pthread_mutex_unlock(&self.lock)

    def settle(self, int number):
        """The closed gate is dealt with: processes that have not drained are awaited no more."""
        linux.pthread_mutex_lock(&self.lock)
        self.state.cards[number].closed_ns = 0
        linux.pthread_mutex_unlock(&self.lock)

    def card(self, int number):
        """The state of a card."""
        cdef CardSlot card
        linux.pthread_mutex_lock(&self.lock)
        card = self.state.cards[number]
        linux.pthread_mutex_unlock(&self.lock)
        return CardState(card.holder, card.gate, card.closed_ns, card.n_awaited)

    def is_wanted(self, int container):
        """Whether a process of the container wants any of its cards."""
        cdef bint found = False
        linux.pthread_mutex_lock(&self.lock)
        for slot in range(self.state.n_connections):
            if self.state.connections[slot].container == container:
                found = found or self.state.connections[slot].wanted != 0
        linux.pthread_mutex_unlock(&self.lock)
        return bool(found)

    def n_users(self, int container, int at):
        """How many of the container's processes have used its card `at`."""
        return self._count(container, at)[0]

    def n_undrained(self, int container, int at):
        """How many of them have not said that their work of an ended lease is over."""
        return self._count(container, at)[1]

    def _count(self, int container, int at):
        cdef int n_users = 0, n_undrained = 0
        linux.pthread_mutex_lock(&self.lock)
        for slot in range(self.state.n_connections):
            if self.state.connections[slot].container == container:
                n_users += self.state.connections[slot].used >> at & 1
                n_undrained += self.state.connections[slot].awaited >> at & 1
        linux.pthread_mutex_unlock(&self.lock)
        return n_users, n_undrained
