/* A thread of ours runs for microseconds, and others wait for it. It asks the scheduler for the
 * shortest slice, so that once woken it has the processor before the thread that is on it. That gives it no
 * more time than it had and needs no rights; a kernel below 6.12 takes it for nothing.
 */
#ifndef BALLAST_SHORT_SLICE_H
#define BALLAST_SHORT_SLICE_H

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHORT_SLICE_NS 100000u

/* The calling thread, unless its program has given it a policy of its own. */
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
