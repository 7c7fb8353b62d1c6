/* The minimum cost of a hand-over on this machine: `floor N` prints, for N of them, the
 * nanoseconds from when one process sends a message over a socket to a second until a third,
 * woken by the second, runs.
 */
#define _GNU_SOURCE
#include "clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAUSE_US = 5000 };

static struct {
    _Atomic uint32_t turn;
    _Atomic uint64_t sent_ns;
} *shared;

static void pass_on(int from)
{
    char message[16];
    while (recv(from, message, sizeof message, 0) == sizeof message) {
        atomic_fetch_add(&shared->turn, 1);
        syscall(SYS_futex, &shared->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

static void tell(int to, long n)
{
    char message[16] = {0};
    for (; n; n--) {
        usleep(PAUSE_US);
        atomic_store(&shared->sent_ns, now_ns());
        if (send(to, message, sizeof message, MSG_NOSIGNAL) != sizeof message)
            return;
    }
}

int main(int n_arguments, char **arguments)
{
    long n = n_arguments > 1 ? atol(arguments[1]) : 0;
    int ends[2];
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n <= 0 || shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
        return 2;
    pid_t middle = fork();
    if (!middle) {
        pass_on(ends[1]);
        _exit(0);
    }
    pid_t first = fork();
    if (!first) {
        tell(ends[0], n);
        _exit(0);
    }
    for (uint32_t seen = 0; seen < n; seen++) {
        while (atomic_load(&shared->turn) == seen)
            syscall(SYS_futex, &shared->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
        printf("%llu\n", (unsigned long long)(now_ns() - atomic_load(&shared->sent_ns)));
    }
    waitpid(first, NULL, 0);
    kill(middle, SIGKILL);
    waitpid(middle, NULL, 0);
    return 0;
}
