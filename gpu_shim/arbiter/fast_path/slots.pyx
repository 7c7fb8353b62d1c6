# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Containers and the connections of their processes: added, removed, and asked about.

Both are known by the numbers of their slots, which stay the same until they are removed. What a
process wants and has drained is changed by `messages`, gates by `gates`.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from gpu_shim.arbiter.fast_path cimport linux
from gpu_shim.arbiter.fast_path.state cimport (
    BALLAST_CLOSED, BALLAST_MAX_CARDS, MAX_CARDS, CardSlot, Connection, ContainerSlot, grants_t,
)

from gpu_shim.arbiter.fast_path.events import CardState


cdef int one_more(void **slots, int *n, size_t size) noexcept nogil:
    """The number of a slot added at the end; -1 without memory."""
    cdef void *grown = realloc(slots[0], <size_t>(n[0] + 1) * size)
    if not grown:
        return -1
    slots[0] = grown
    n[0] += 1
    return n[0] - 1


cdef class Slots:
    """The state of all cards of a node.

    The caller owns descriptors and pages and keeps them until their slot is removed. Times are
    nanoseconds of the monotonic clock; 0 stands for now.
    """

    def __cinit__(self):
        linux.pthread_mutex_init(&self.lock, NULL)
        for number in range(MAX_CARDS):
            self.state.cards[number].holder = self.state.cards[number].successor = -1

    def __dealloc__(self):
        free(self.state.containers)
        free(self.state.connections)

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
            self._end(slot, now_ns or linux.clock_ns())
            self.state.connections[slot].container = -1
            self.state.connections[slot].has_event = False
        linux.pthread_mutex_unlock(&self.lock)

    cdef void _unwatch(self, int fd) noexcept nogil:
        """Wait for messages of this socket no more; there is nothing that waits here."""

    cdef void _end(self, int connection, uint64_t now_ns) noexcept nogil:
        """The process has ended; there is nothing that awaits it here."""

    # -- questions -------------------------------------------------------------------------------

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
