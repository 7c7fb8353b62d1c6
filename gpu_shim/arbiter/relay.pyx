# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Python's side of the arbiter's thread (see `ear`), which passes turns as Python has decided.

It decides between `take` and `release`: it hears what happened, and says what will happen next.
Doors, lines and cards are numbers of places in the hall. Descriptors and pages are the caller's,
and must outlive their line or door.
"""

from libc.stdint cimport uint32_t, uint64_t

from gpu_shim.arbiter cimport bells, linux
from gpu_shim.arbiter.bells cimport clock_ns
from gpu_shim.arbiter.ear cimport Ear
from gpu_shim.arbiter.hall cimport (
    MAX_DESKS, Desk, Door, Line, drop_door, pick_news, put_door, put_line, put_order,
)
from gpu_shim.arbiter.turns cimport lose, set_gate
from gpu_shim.arbiter.words cimport acts_of, desk_of, door_of, said_of

from gpu_shim.arbiter.news import News


cdef class Relay(Ear):
    """One for all cards of a node."""

    # -- places ----------------------------------------------------------------------------------

    def open_door(self, size_t grants, cards):
        """A place for a container: the address of its grants, and the numbers of its cards."""
        cdef Door door = door_of(grants, cards)
        cdef int place
        linux.pthread_mutex_lock(&self.lock)
        place = put_door(&self.hall, &door)
        linux.pthread_mutex_unlock(&self.lock)
        if place < 0:
            raise MemoryError
        return place

    def close_door(self, int door):
        """Forget a container, its lines, and what was to happen to it."""
        for line in range(self.hall.n_lines):
            if self.hall.lines[line].door == door:
                self.forget(line)
        linux.pthread_mutex_lock(&self.lock)
        drop_door(&self.hall, door)
        linux.pthread_mutex_unlock(&self.lock)

    def watch(self, int door, int fd):
        """A place for a process's connection, which is heard from now on."""
        cdef int place
        linux.pthread_mutex_lock(&self.lock)
        place = put_line(&self.hall, door, fd)
        linux.pthread_mutex_unlock(&self.lock)
        if place < 0:
            raise MemoryError
        bells.follow(&self.bells, fd, place)
        return place

    def forget(self, int line):
        """Hear a connection no more; it may be closed then."""
        linux.pthread_mutex_lock(&self.lock)
        if self.hall.lines[line].fd >= 0:
            bells.unfollow(&self.bells, self.hall.lines[line].fd)
            lose(&self.hall, line, clock_ns())
            self.hall.lines[line].fd = -1
            self.hall.lines[line].is_news = False
        linux.pthread_mutex_unlock(&self.lock)

    # -- the floor -------------------------------------------------------------------------------

    def take(self):
        """What is new. Nothing happens by itself from here on, until `release`."""
        cdef Desk desks[MAX_DESKS]
        cdef Line line
        cdef uint64_t now_ns
        cdef int at, place = -1
        linux.pthread_mutex_lock(&self.lock)
        self.hall.is_held, self.hall.has_news = True, False
        bells.hush(&self.bells)
        now_ns = clock_ns()
        desks = self.hall.desks
        for at in range(MAX_DESKS):
            self.hall.desks[at].closed_ns = self.hall.desks[at].passed_ns = 0
        linux.pthread_mutex_unlock(&self.lock)
        said = []
        while True:
            linux.pthread_mutex_lock(&self.lock)
            place = pick_news(&self.hall, place + 1, &line)
            linux.pthread_mutex_unlock(&self.lock)
            if place < 0:
                return News(now_ns, acts_of(desks), said)
            said.append(said_of(place, &line))

    def set_gate(self, int door, int at, uint32_t state, uint64_t deadline_ns):
        """Set one gate of a container now; its generation then."""
        linux.pthread_mutex_lock(&self.lock)
        generation = set_gate(&self.hall, door, at, state, deadline_ns)
        linux.pthread_mutex_unlock(&self.lock)
        return generation

    def arm(self, int card, order):
        """Say what happens on a card by itself (see `Order`); None: nothing."""
        cdef Desk new = desk_of(order)
        linux.pthread_mutex_lock(&self.lock)
        put_order(&self.hall, card, &new)
        linux.pthread_mutex_unlock(&self.lock)

    def release(self):
        """Let things happen by themselves again; what is due happens now."""
        cdef uint64_t now_ns = clock_ns()
        linux.pthread_mutex_lock(&self.lock)
        self.hall.is_held = False
        self._advance(now_ns)
        linux.pthread_mutex_unlock(&self.lock)
