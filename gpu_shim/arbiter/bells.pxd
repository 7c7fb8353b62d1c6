"""What wakes the arbiter's thread, and what it rings for Python: see `bells.pyx`."""

from libc.stdint cimport uint64_t

from gpu_shim.arbiter.linux cimport epoll_event

# What wakes the thread besides lines, whose numbers are their own.
cdef enum:
    TIMER = -1
    END = -2


# Descriptors. `timer_ns` is when the timer is due (0: never); `is_rung` until Python has heard.
cdef struct Bells:
    int epoll, timer, end, news
    uint64_t timer_ns
    bint is_rung


cdef bint hang(Bells *bells) noexcept nogil
cdef void take_down(Bells *bells) noexcept nogil
cdef void follow(Bells *bells, int fd, int what) noexcept nogil
cdef void unfollow(Bells *bells, int fd) noexcept nogil
cdef int sleep(Bells *bells, epoll_event *events, int most) noexcept nogil
cdef void set_timer(Bells *bells, uint64_t then_ns) noexcept nogil
cdef void heed_timer(Bells *bells) noexcept nogil
cdef void ring(Bells *bells) noexcept nogil
cdef void hush(Bells *bells) noexcept nogil
cdef uint64_t clock_ns() noexcept nogil
