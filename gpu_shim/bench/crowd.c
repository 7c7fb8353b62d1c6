/* Programs that start at once: `crowd N` forks N processes, lets them call cuInit at one moment,
 * which registers a program, and prints the nanoseconds that each took.
 */
#define _GNU_SOURCE
#include "clock.h"

#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256 };

static struct {
    _Atomic uint32_t n_ready, is_open, n_done;
    uint64_t took_ns[MOST];
} *shared;

static int come(long at)
{
    int version;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*initialise)(unsigned) = library ? (int (*)(unsigned))dlsym(library, "cuInit") : NULL;
    int (*tell)(int *) = library ? (int (*)(int *))dlsym(library, "cuDriverGetVersion") : NULL;
    /* The second loads the driver, which is not part of the measurement. */
    if (!initialise || !tell || tell(&version))
        return 1;
    atomic_fetch_add(&shared->n_ready, 1);
    while (!atomic_load(&shared->is_open))
        syscall(SYS_futex, &shared->is_open, FUTEX_WAIT, 0, NULL, NULL, 0);
    uint64_t began_ns = now_ns();
    int status = initialise(0);
    shared->took_ns[at] = now_ns() - began_ns;
    atomic_fetch_add(&shared->n_done, 1);
    while (atomic_load(&shared->is_open) == 1)
        syscall(SYS_futex, &shared->is_open, FUTEX_WAIT, 1, NULL, NULL, 0);
    return status;
}

static void open_to(uint32_t what)
{
    atomic_store(&shared->is_open, what);
    syscall(SYS_futex, &shared->is_open, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int main(int n_arguments, char **arguments)
{
    long n = n_arguments > 1 ? atol(arguments[1]) : 0;
    int status, n_failed = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n <= 0 || n > MOST || shared == MAP_FAILED)
        return 2;
    for (long at = 0; at < n; at++) {
        if (!fork())
            _exit(come(at));
    }
    for (int left = 20000; left && atomic_load(&shared->n_ready) < n; left--)
        usleep(1000);
    usleep(100000);
    open_to(1);
    for (int left = 20000; left && atomic_load(&shared->n_done) < n; left--)
        usleep(1000);
    open_to(2);
    while (wait(&status) > 0)
        n_failed += status != 0;
    for (long at = 0; at < n; at++)
        printf("%llu\n", (unsigned long long)shared->took_ns[at]);
    return n_failed != 0;
}
