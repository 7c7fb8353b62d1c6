/* The shared card: mapping, memory, log. */
#define _GNU_SOURCE
#include "device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOKING_NS 100000

static struct fake_card *the_card;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_card(void)
{
    const char *path = getenv("FAKECUDA_STATE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *the_card, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        the_card = at;
}

struct fake_card *fake_card(void)
{
    pthread_once(&once, map_card);
    return the_card;
}

static uint32_t space_of(const char *pid)
{
    char path[300];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
    return stat(path, &about) ? 0 : (uint32_t)about.st_ino;
}

uint32_t fake_own_space(void)
{
    static _Atomic uint32_t space;
    if (!space)
        space = space_of("self");
    return space;
}

/* The last number of the line `NSpid:` is what the process calls itself. */
static uint32_t own_pid_of(const char *pid)
{
    char path[300], line[256];
    uint32_t found = 0;
    snprintf(path, sizeof path, "/proc/%s/status", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "NSpid:", 6))
            found = (uint32_t)strtoul(strrchr(line, '\t'), NULL, 10);
    }
    if (file)
        fclose(file);
    return found;
}

uint32_t fake_seen_pid(const struct fake_process *process)
{
    uint32_t seen = 0;
    if (!process->space || process->space == fake_own_space())
        return process->pid;
    DIR *folder = opendir("/proc");
    for (struct dirent *each; folder && !seen && (each = readdir(folder));) {
        uint32_t pid = (uint32_t)strtoul(each->d_name, NULL, 10);
        if (pid && space_of(each->d_name) == process->space &&
            own_pid_of(each->d_name) == process->pid)
            seen = pid;
    }
    if (folder)
        closedir(folder);
    return seen;
}

uint64_t fake_used(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        struct fake_process *process = &the_card->processes[i];
        uint32_t pid = process->pid;
        bool is_near = !process->space || process->space == fake_own_space();
        if (pid && is_near && kill((pid_t)pid, 0) && errno == ESRCH) {
            process->bytes = 0;
            atomic_compare_exchange_strong(&process->pid, &pid, 0);
        }
        sum += process->bytes;
    }
    return sum;
}

static struct fake_process *ours(struct fake_card *card)
{
    uint32_t pid = (uint32_t)getpid(), space = fake_own_space();
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        if (card->processes[i].pid == pid && card->processes[i].space == space)
            return &card->processes[i];
    }
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        uint32_t nobody = 0;
        if (atomic_compare_exchange_strong(&card->processes[i].pid, &nobody, pid)) {
            card->processes[i].space = space;
            return &card->processes[i];
        }
    }
    abort();
}

int fake_take(uint64_t bytes)
{
    struct fake_card *card = fake_card();
    if (fake_used() + bytes > card->total_bytes)
        return 0;
    ours(card)->bytes += bytes;
    return 1;
}

void fake_give(uint64_t bytes)
{
    ours(fake_card())->bytes -= bytes;
}

uint64_t fake_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* As a driver does that has a processor to spare: the last bit of an exact wait is spent looking, for
 * a sleep ends late by more than a hand-over should take. */
void fake_sleep_until(uint64_t until_ns, bool is_exact)
{
    uint64_t early_ns = is_exact ? LOOKING_NS : 0;
    uint64_t near_ns = until_ns > early_ns ? until_ns - early_ns : 0;
    struct timespec near = {(time_t)(near_ns / 1000000000u), (long)(near_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &near, NULL) == EINTR)
        continue;
    while (fake_now_ns() < until_ns)
        continue;
}

int fake_n_cards(void)
{
    const char *said = getenv("FAKECUDA_CARDS");
    return said ? atoi(said) : 1;
}

uint16_t fake_tag(void)
{
    static _Atomic uint32_t tag = UINT32_MAX;
    if (tag == UINT32_MAX) {
        const char *said = getenv("FAKECUDA_TAG");
        tag = said ? (uint32_t)atoi(said) : 0;
    }
    return (uint16_t)tag;
}

void fake_log(uint32_t pid, uint16_t tag, int on, uint64_t start_ns, uint64_t end_ns)
{
    struct fake_card *card = fake_card();
    uint64_t at = atomic_fetch_add(&card->n_runs, 1);
    card->runs[at % FAKE_MAX_RUNS] =
        (struct fake_run){pid, tag, (uint16_t)on, start_ns, end_ns};
}
