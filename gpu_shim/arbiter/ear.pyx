# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The arbiter's thread: hears processes and passes turns (see `turns`) without the GIL."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from gpu_shim.arbiter cimport bells, linux
from gpu_shim.arbiter.bells cimport END, TIMER, clock_ns
from gpu_shim.arbiter.hall cimport MAX_DESKS, Line, message_t
from gpu_shim.arbiter.turns cimport advance, hear, lose, next_ns

cdef enum:
    N_EVENTS = 64


cdef class Ear:
    """The hall, its lock, and what is done with it when somebody speaks or the time has come."""

    def __cinit__(self):
        linux.pthread_mutex_init(&self.lock, NULL)
        if not bells.hang(&self.bells):
            raise OSError(errno, "the arbiter has no descriptors left")
        for at in range(MAX_DESKS):
            self.hall.desks[at].next = -1

    def __dealloc__(self):
        bells.take_down(&self.bells)
        free(self.hall.doors)
        free(self.hall.lines)

    def fileno(self):
        """Readable when there is news to `take`."""
        return self.bells.news

    def run(self):
        """Hear and pass turns until `stop`. The thread, one at a time."""
        with nogil:
            linux.be_prompt()
            while not self.is_ending:
                self._serve()

    def stop(self):
        """Have the thread end; what it would have done is left."""
        linux.eventfd_write(self.bells.end, 1)

    cdef void _serve(self) noexcept nogil:
        cdef linux.epoll_event events[N_EVENTS]
        cdef uint64_t now_ns
        cdef int n = bells.sleep(&self.bells, events, N_EVENTS), at, line
        linux.pthread_mutex_lock(&self.lock)
        now_ns = clock_ns()
        for at in range(n):
            line = <int>events[at].data.u64
            if line == TIMER:
                bells.heed_timer(&self.bells)
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
            bells.unfollow(&self.bells, own.fd)
            lose(&self.hall, line, now_ns)

    cdef void _advance(self, uint64_t now_ns) noexcept nogil:
        """What is due on any card; then set the timer, and ring where there is news."""
        cdef int desk
        for desk in range(MAX_DESKS):
            advance(&self.hall, desk, now_ns)
        bells.set_timer(&self.bells, 0 if self.hall.is_held else next_ns(&self.hall))
        if self.hall.has_news:
            bells.ring(&self.bells)
