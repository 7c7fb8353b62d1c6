# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The arbiter's thread: hears processes and passes turns (see `turns`) without the GIL.

`run` is the thread; all else is for Python, which decides between `take` and `release`: it hears
what happened, and says what will happen next. Doors, lines and cards are numbers of places in the
hall. Descriptors and pages are the caller's, and must outlive their line or door.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, itimerspec, timespec
from posix.unistd cimport close, read

from gpu_shim.arbiter cimport linux
from gpu_shim.arbiter.hall cimport (
    BALLAST_MAX_CARDS,
    MAX_DESKS,
    Desk,
    Door,
    Hall,
    Line,
    drop_door,
    grants_t,
    message_t,
    pick_news,
    put_door,
    put_line,
)
from gpu_shim.arbiter.turns cimport advance, hear, lose, next_ns, set_gate

from gpu_shim.arbiter.news import Act, News, Said

# What wakes the thread besides lines.
cdef enum:
    TIMER = -1
    END = -2
    N_EVENTS = 64


cdef uint64_t clock_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec


cdef class Relay:
    """One for all cards of a node."""

    cdef Hall hall
    cdef linux.pthread_mutex_t lock
    cdef int epoll, timer, end, bell
    cdef uint64_t timer_ns
    cdef bint is_rung, is_ending

    def __cinit__(self):
        linux.pthread_mutex_init(&self.lock, NULL)
        self.epoll = linux.epoll_create1(linux.EPOLL_CLOEXEC)
        self.timer = linux.timerfd_create(CLOCK_MONOTONIC, linux.TFD_CLOEXEC | linux.TFD_NONBLOCK)
        self.end = linux.eventfd(0, linux.EFD_CLOEXEC | linux.EFD_NONBLOCK)
        self.bell = linux.eventfd(0, linux.EFD_CLOEXEC | linux.EFD_NONBLOCK)
        if min(self.epoll, self.timer, self.end, self.bell) < 0:
            raise OSError(errno, "the arbiter has no descriptors left")
        self._follow(self.timer, TIMER)
        self._follow(self.end, END)
        for at in range(MAX_DESKS):
            self.hall.desks[at].next = -1

    def __dealloc__(self):
        for fd in (self.epoll, self.timer, self.end, self.bell):
            close(fd)
        free(self.hall.doors)
        free(self.hall.lines)

    def fileno(self):
        """Readable when there is news to `take`."""
        return self.bell

    # -- the thread ------------------------------------------------------------------------------

    def run(self):
        """Hear and pass turns until `stop`. One thread at a time."""
        with nogil:
            while not self.is_ending:
                self._serve()

    def stop(self):
        """Have the thread end; what it would have done is left."""
        linux.eventfd_write(self.end, 1)

    cdef void _serve(self) noexcept nogil:
        cdef linux.epoll_event events[N_EVENTS]
        cdef uint64_t now_ns, ignored
        cdef int n = linux.epoll_wait(self.epoll, events, N_EVENTS, -1), at, line
        linux.pthread_mutex_lock(&self.lock)
        now_ns = clock_ns()
        for at in range(n):
            line = <int>events[at].data.u64
            if line == TIMER:
                read(self.timer, &ignored, sizeof(ignored))
            elif line == END:
                self.is_ending = True
            else:
                self._read(line, now_ns)
        self._advance(now_ns)
        linux.pthread_mutex_unlock(&self.lock)

    cdef void _read(self, int line, uint64_t now_ns) noexcept nogil:
        """One message of a process; at worst its last."""
        cdef Line *own = &self.hall.lines[line]
        cdef message_t message
        cdef ssize_t n
        if own.fd < 0 or own.is_gone:
            return
        n = linux.recv(own.fd, &message, sizeof(message), linux.MSG_DONTWAIT | linux.MSG_TRUNC)
        if n < 0 and (errno == EAGAIN or errno == EINTR):
            return
        if n != sizeof(message) or not hear(&self.hall, line, &message, now_ns):
            linux.epoll_ctl(self.epoll, linux.EPOLL_CTL_DEL, own.fd, NULL)
            lose(&self.hall, line, now_ns)

    cdef void _advance(self, uint64_t now_ns) noexcept nogil:
        """What is due on any card; then set the timer, and ring where there is news."""
        cdef itimerspec when
        cdef uint64_t then_ns
        cdef int desk
        for desk in range(MAX_DESKS):
            advance(&self.hall, desk, now_ns)
        then_ns = 0 if self.hall.is_held else next_ns(&self.hall)
        if then_ns != self.timer_ns:
            memset(&when, 0, sizeof(when))
            when.it_value.tv_sec = then_ns // 1000000000
            when.it_value.tv_nsec = then_ns % 1000000000
            linux.timerfd_settime(self.timer, linux.TFD_TIMER_ABSTIME, &when, NULL)
            self.timer_ns = then_ns
        if self.hall.has_news and not self.is_rung:
            self.is_rung = True
            linux.eventfd_write(self.bell, 1)

    # -- places ----------------------------------------------------------------------------------

    cdef void _follow(self, int fd, int what):
        cdef linux.epoll_event event
        event.events = linux.EPOLLIN
        event.data.u64 = <uint64_t><long long>what
        linux.epoll_ctl(self.epoll, linux.EPOLL_CTL_ADD, fd, &event)

    def open_door(self, size_t grants, cards):
        """A place for a container: the address of its grants, and the numbers of its cards."""
        cdef Door door
        cdef int place
        memset(&door, 0, sizeof(door))
        door.grants, door.n_cards = <grants_t *>grants, len(cards)
        if not 0 < door.n_cards <= BALLAST_MAX_CARDS:
            raise ValueError(f"a container of {len(cards)} cards")
        for at, card in enumerate(cards):
            if not 0 <= card < MAX_DESKS:
                raise ValueError(f"card {card} of {MAX_DESKS}")
            door.desk[at] = card
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
        self._follow(fd, place)
        return place

    def forget(self, int line):
        """Hear a connection no more; it may be closed then."""
        linux.pthread_mutex_lock(&self.lock)
        if self.hall.lines[line].fd >= 0:
            linux.epoll_ctl(self.epoll, linux.EPOLL_CTL_DEL, self.hall.lines[line].fd, NULL)
            lose(&self.hall, line, clock_ns())
            self.hall.lines[line].fd = -1
            self.hall.lines[line].is_news = False
        linux.pthread_mutex_unlock(&self.lock)

    # -- the floor -------------------------------------------------------------------------------

    def take(self):
        """What is new. Nothing happens by itself from here on, until `release`."""
        cdef Desk desks[MAX_DESKS]
        cdef Line line
        cdef uint64_t ignored, now_ns
        cdef int at, place = -1
        linux.pthread_mutex_lock(&self.lock)
        self.hall.is_held, self.hall.has_news, self.is_rung = True, False, False
        linux.eventfd_read(self.bell, &ignored)
        now_ns = clock_ns()
        desks = self.hall.desks
        for at in range(MAX_DESKS):
            self.hall.desks[at].closed_ns = self.hall.desks[at].passed_ns = 0
        linux.pthread_mutex_unlock(&self.lock)
        acts, said = [], []
        for at in range(MAX_DESKS):
            if desks[at].closed_ns or desks[at].passed_ns:
                acts.append(Act(at, desks[at].closed_ns, desks[at].closed_generation,
                                desks[at].passed_ns, desks[at].passed_generation))
        while True:
            linux.pthread_mutex_lock(&self.lock)
            place = pick_news(&self.hall, place + 1, &line)
            linux.pthread_mutex_unlock(&self.lock)
            if place < 0:
                return News(now_ns, acts, said)
            said.append(Said(
                place,
                [(at, bool(line.wanted >> at & 1)) for at in _bits(line.told)],
                [(at, line.generation[at]) for at in _bits(line.drained)],
                bool(line.is_gone),
            ))

    def set_gate(self, int door, int at, uint32_t state, uint64_t deadline_ns):
        """Set one gate of a container now; its generation then."""
        linux.pthread_mutex_lock(&self.lock)
        generation = set_gate(&self.hall, door, at, state, deadline_ns)
        linux.pthread_mutex_unlock(&self.lock)
        return generation

    def arm(self, int card, order):
        """Say what happens on a card by itself (see `Order`); None: nothing."""
        cdef Desk *desk = &self.hall.desks[card]
        cdef Desk new
        memset(&new, 0, sizeof(new))
        new.next = -1
        if order is not None:
            new.close_ns, new.latest_ns, new.run_ns = order.close_ns, order.latest_ns, order.run_ns
            new.holder, new.holder_at = order.holder
            new.next, new.next_at = order.following
            new.is_renewal = order.is_renewal
        linux.pthread_mutex_lock(&self.lock)
        if not new.close_ns:
            new.holder, new.holder_at = desk.holder, desk.holder_at
            new.n_awaited = desk.n_awaited
        desk[0] = new
        linux.pthread_mutex_unlock(&self.lock)

    def release(self):
        """Let things happen by themselves again; what is due happens now."""
        cdef uint64_t now_ns = clock_ns()
        linux.pthread_mutex_lock(&self.lock)
        self.hall.is_held = False
        self._advance(now_ns)
        linux.pthread_mutex_unlock(&self.lock)


cdef _bits(uint32_t mask):
    return [at for at in range(BALLAST_MAX_CARDS) if mask >> at & 1]
