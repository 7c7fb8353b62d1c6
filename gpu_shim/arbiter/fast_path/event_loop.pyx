# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The arbiter's thread: waits for messages and for the next planned time, without the GIL.

It wakes the scheduler, which runs on the asyncio loop, through one file descriptor: `fileno` is
readable while there are events that the scheduler has not taken.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint64_t
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, itimerspec
from posix.unistd cimport close, read

from gpu_shim.arbiter.fast_path cimport linux
from gpu_shim.arbiter.fast_path.handover cimport Handover
from gpu_shim.arbiter.fast_path.state cimport Connection, message_t

# What epoll reports: the slot of a connection, or one of these.
cdef enum:
    TIMER = -1
    END = -2
    N_EVENTS = 64


cdef class EventLoop(Handover):
    """A `Handover` that receives the messages of its connections and advances with the clock."""

    cdef int epoll, timer, end, wakeup
    # When the timer is due; 0: never.
    cdef uint64_t timer_ns
    cdef bint is_scheduler_woken, is_ending

    def __cinit__(self):
        self.epoll = linux.epoll_create1(linux.EPOLL_CLOEXEC)
        self.timer = linux.timerfd_create(CLOCK_MONOTONIC, linux.TFD_CLOEXEC | linux.TFD_NONBLOCK)
        self.end = linux.eventfd(0, linux.EFD_CLOEXEC | linux.EFD_NONBLOCK)
        self.wakeup = linux.eventfd(0, linux.EFD_CLOEXEC | linux.EFD_NONBLOCK)
        if self.epoll < 0 or self.timer < 0 or self.end < 0 or self.wakeup < 0:
            raise OSError(errno, "the arbiter has no descriptors left")
        self._watch(self.timer, TIMER)
        self._watch(self.end, END)

    def __dealloc__(self):
        for fd in (self.epoll, self.timer, self.end, self.wakeup):
            close(fd)

    def fileno(self):
        """Readable while there are events for the scheduler."""
        return self.wakeup

    def run(self):
        """Receive and advance until `stop`. The body of the thread; one at a time."""
        with nogil:
            linux.request_short_slice()
            while not self.is_ending:
                self._serve()

    def stop(self):
        """End the thread; plans that are due after that are not carried out."""
        linux.eventfd_write(self.end, 1)

    def add_connection(self, int container, int fd=-1):
        """The slot of a new process of the container; its messages are received from now on."""
        slot = Handover.add_connection(self, container, fd)
        self._watch(fd, slot)
        return slot

    cdef void _serve(self) noexcept nogil:
        cdef linux.epoll_event events[N_EVENTS]
        cdef uint64_t now_ns, ignored
        cdef int n = linux.epoll_wait(self.epoll, events, N_EVENTS, -1), at, source
        linux.pthread_mutex_lock(&self.lock)
        now_ns = linux.clock_ns()
        for at in range(n):
            source = <int>events[at].data.u64
            if source == TIMER:
                read(self.timer, &ignored, sizeof(ignored))
            elif source == END:
                self.is_ending = True
            else:
                self._read(source, now_ns)
        self._advance(now_ns)
        linux.pthread_mutex_unlock(&self.lock)

    cdef void _read(self, int connection, uint64_t now_ns) noexcept nogil:
        """Receive one message. One that the process may not send is its last."""
        cdef Connection *own = &self.state.connections[connection]
        cdef message_t message
        cdef ssize_t n
        if own.container < 0 or own.is_ended:
            return
        n = linux.recv(own.fd, &message, sizeof(message), linux.MSG_DONTWAIT | linux.MSG_TRUNC)
        if n < 0 and (errno == EAGAIN or errno == EINTR):
            return
        if n != sizeof(message) or not self._receive(connection, &message, now_ns):
            self._unwatch(own.fd)
            self._end(connection, now_ns)

    cdef void _advance(self, uint64_t now_ns) noexcept nogil:
        """Carry out what is due, set the timer to what comes next, and wake the scheduler."""
        Handover._advance(self, now_ns)
        self._set_timer(self._next_ns())
        if self.state.has_events and not self.is_scheduler_woken:
            self.is_scheduler_woken = True
            linux.eventfd_write(self.wakeup, 1)

    cdef void _heard(self) noexcept nogil:
        cdef uint64_t ignored
        self.is_scheduler_woken = False
        linux.eventfd_read(self.wakeup, &ignored)

    cdef void _set_timer(self, uint64_t then_ns) noexcept nogil:
        cdef itimerspec when
        if then_ns == self.timer_ns:
            return
        memset(&when, 0, sizeof(when))
        when.it_value.tv_sec = then_ns // 1000000000
        when.it_value.tv_nsec = then_ns % 1000000000
        linux.timerfd_settime(self.timer, linux.TFD_TIMER_ABSTIME, &when, NULL)
        self.timer_ns = then_ns

    cdef void _watch(self, int fd, int source) noexcept nogil:
        cdef linux.epoll_event event
        event.events = linux.EPOLLIN
        event.data.u64 = <uint64_t><long long>source
        linux.epoll_ctl(self.epoll, linux.EPOLL_CTL_ADD, fd, &event)

    cdef void _unwatch(self, int fd) noexcept nogil:
        linux.epoll_ctl(self.epoll, linux.EPOLL_CTL_DEL, fd, NULL)
