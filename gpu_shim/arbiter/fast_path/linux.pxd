"""The clock, and the system calls that Cython does not declare."""

from libc.stdint cimport uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, itimerspec, timespec

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *how)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    const int EPOLLIN, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CLOEXEC
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int what, int fd, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int n, int timeout_ms)

cdef extern from "<sys/timerfd.h>" nogil:
    const int TFD_CLOEXEC, TFD_NONBLOCK, TFD_TIMER_ABSTIME
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, itimerspec *when, itimerspec *before)

cdef extern from "<sys/eventfd.h>" nogil:
    const int EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int value, int flags)
    int eventfd_write(int fd, uint64_t value)
    int eventfd_read(int fd, uint64_t *value)

cdef extern from "<sys/socket.h>" nogil:
    const int MSG_DONTWAIT, MSG_TRUNC
    ssize_t recv(int fd, void *into, size_t n, int flags)

cdef extern from "short_slice.h" nogil:
    void request_short_slice()


cdef inline uint64_t clock_ns() noexcept nogil:
    """The clock of all gates and deadlines."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec
