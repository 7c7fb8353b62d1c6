from libc.stdint cimport uint64_t

from gpu_shim.arbiter.fast_path.linux cimport pthread_mutex_t
from gpu_shim.arbiter.fast_path.state cimport ArbiterState


cdef class Slots:
    cdef ArbiterState state
    cdef pthread_mutex_t lock

    cdef void _unwatch(self, int fd) noexcept nogil
    cdef void _end(self, int connection, uint64_t now_ns) noexcept nogil
