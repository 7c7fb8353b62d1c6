/* The threads of this library run for microseconds while other threads wait for them. They
 * request the scheduler's shortest slice, so that a woken thread gets the processor before the
 * running one. That grants no more CPU time and needs no rights; a kernel below 6.12 ignores it.
 */
#ifndef BALLAST_SHORT_SLICE_H
#define BALLAST_SHORT_SLICE_H

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHORT_SLICE_NS 100000u

/* Applies to the calling thread, unless its program has set another scheduling policy. */
static inline void request_short_slice(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline_ns, period_ns;
    } how = {.size = 48};
    const uint32_t ordinary = 0;
    if (syscall(SYS_sched_getattr, 0, &how, sizeof how, 0) || how.policy != ordinary)
        return;
    how.slice_ns = SHORT_SLICE_NS;
    syscall(SYS_sched_setattr, 0, &how, 0);
}

#endif
