# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# distutils: sources = gpu_shim/native/pages.c gpu_shim/native/table.c
"""Hands a card from one container to the next as the scheduler planned it, without Python.

When a lease ends, the holder's gate closes; when every process that used the card has drained, the
successor's gate opens. Nothing is chosen here: without a plan, or when a plan is too late, the
scheduler decides. The only I/O is setting gates. `Handover` is driven by an explicit time, so tests
need no thread; `EventLoop` drives it by messages and the clock.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from gpu_shim.arbiter.fast_path cimport gates, linux, messages
from gpu_shim.arbiter.fast_path.slots cimport Slots
from gpu_shim.arbiter.fast_path.state cimport MAX_CARDS, CardSlot, Connection, message_t

from gpu_shim.arbiter.fast_path.events import Events
from gpu_shim.arbiter.fast_path.events import Handover as Done


cdef class Handover(Slots):
    """Carries out plans when processes send messages and time passes, and takes new plans."""

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
        return messages.receive(&self.state, connection, message, now_ns)

    cdef void _end(self, int connection, uint64_t now_ns) noexcept nogil:
        messages.end_process(&self.state, connection, now_ns)

    cdef void _advance(self, uint64_t now_ns) noexcept nogil:
        cdef int number
        for number in range(MAX_CARDS):
            gates.advance(&self.state, number, now_ns)

    cdef uint64_t _next_ns(self) noexcept nogil:
        return gates.next_ns(&self.state)

    cdef void _heard(self) noexcept nogil:
        """The scheduler hears of all events now; there is nothing that called it here."""

    # -- the scheduler's decisions ----------------------------------------------------------------

    def begin_decision(self, uint64_t now_ns=0):
        """What happened since the last decision. No plan is carried out until `end_decision`."""
        cdef CardSlot cards[MAX_CARDS]
        cdef Connection each
        cdef int number, slot = -1
        linux.pthread_mutex_lock(&self.lock)
        self.state.is_deciding, self.state.has_events = True, False
        self._heard()
        now_ns = now_ns or linux.clock_ns()
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
            slot = messages.take_event(&self.state, slot + 1, &each)
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
        self._advance(now_ns or linux.clock_ns())
        linux.pthread_mutex_unlock(&self.lock)

    def set_gate(self, int container, int at, uint32_t gate, uint64_t deadline_ns,
                 uint64_t now_ns=0):
        """Set one gate of a container now; its new generation."""
        linux.pthread_mutex_lock(&self.lock)
        generation = gates.set_gate(
            &self.state, container, at, gate, deadline_ns, now_ns or linux.clock_ns()
        )
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
