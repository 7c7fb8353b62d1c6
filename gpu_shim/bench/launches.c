/* A loop of launches, as tight as a program's can be. */
#include "clock.h"

typedef int launcher(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);
typedef int waiter(void *);

/* Nanoseconds that n launches of a kernel without arguments took. */
__attribute__((visibility("default"))) uint64_t bench_launches(launcher *launch, waiter *wait,
                                                               void *kernel, uint64_t n)
{
    uint64_t took = 0;
    for (uint64_t done = 0; done < n; done += 500) {
        uint64_t began = now_ns();
        for (int at = 0; at < 500; at++)
            launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
        took += now_ns() - began;
        wait(0); /* or the queue fills, and the driver's own wait is measured */
    }
    return took;
}
