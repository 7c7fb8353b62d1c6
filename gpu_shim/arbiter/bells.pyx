# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What wakes the arbiter's thread: processes, a timer, the end. And the bell for Python."""

from libc.stdint cimport uint64_t
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, itimerspec, timespec
from posix.unistd cimport close, read

from gpu_shim.arbiter cimport linux


cdef bint hang(Bells *bells) noexcept nogil:
    """Make all of them; False where no descriptors are left (errno says so)."""
    bells.epoll = linux.epoll_create1(linux.EPOLL_CLOEXEC)
    bells.timer = linux.timerfd_create(CLOCK_MONOTONIC, linux.TFD_CLOEXEC | linux.TFD_NONBLOCK)
    bells.end = linux.eventfd(0, linux.EFD_CLOEXEC | linux.EFD_NONBLOCK)
    bells.news = linux.eventfd(0, linux.EFD_CLOEXEC | linux.EFD_NONBLOCK)
    bells.timer_ns, bells.is_rung = 0, False
    if bells.epoll < 0 or bells.timer < 0 or bells.end < 0 or bells.news < 0:
        return False
    follow(bells, bells.timer, TIMER)
    follow(bells, bells.end, END)
    return True


cdef void take_down(Bells *bells) noexcept nogil:
    """Close what `hang` made, whether it made all of them or not."""
    close(bells.epoll)
    close(bells.timer)
    close(bells.end)
    close(bells.news)


cdef void follow(Bells *bells, int fd, int what) noexcept nogil:
    """Wake up when there is something to read, and be told so by this number."""
    cdef linux.epoll_event event
    event.events = linux.EPOLLIN
    event.data.u64 = <uint64_t><long long>what
    linux.epoll_ctl(bells.epoll, linux.EPOLL_CTL_ADD, fd, &event)


cdef void unfollow(Bells *bells, int fd) noexcept nogil:
    """Be woken by it no more."""
    linux.epoll_ctl(bells.epoll, linux.EPOLL_CTL_DEL, fd, NULL)


cdef int sleep(Bells *bells, linux.epoll_event *events, int most) noexcept nogil:
    """Until something is there; how many events were written."""
    return linux.epoll_wait(bells.epoll, events, most, -1)


cdef void set_timer(Bells *bells, uint64_t then_ns) noexcept nogil:
    """Wake up at that moment; 0: at none."""
    cdef itimerspec when
    if then_ns == bells.timer_ns:
        return
    memset(&when, 0, sizeof(when))
    when.it_value.tv_sec = then_ns // 1000000000
    when.it_value.tv_nsec = then_ns % 1000000000
    linux.timerfd_settime(bells.timer, linux.TFD_TIMER_ABSTIME, &when, NULL)
    bells.timer_ns = then_ns


cdef void heed_timer(Bells *bells) noexcept nogil:
    """Wake up for what the timer has said no more."""
    cdef uint64_t ignored
    read(bells.timer, &ignored, sizeof(ignored))


cdef void ring(Bells *bells) noexcept nogil:
    """Tell Python that there is news, once until it has heard."""
    if not bells.is_rung:
        bells.is_rung = True
        linux.eventfd_write(bells.news, 1)


cdef void hush(Bells *bells) noexcept nogil:
    """Python has heard."""
    cdef uint64_t ignored
    bells.is_rung = False
    linux.eventfd_read(bells.news, &ignored)


cdef uint64_t clock_ns() noexcept nogil:
    """The time of all gates and deadlines."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec
