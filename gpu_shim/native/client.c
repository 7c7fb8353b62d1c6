/* Configuration, connection, and the only thread that we add to a program.
 *
 * The thread answers the arbiter while the program's own threads compute, wait or hold the GIL.
 * It blocks every signal, so that no signal for the program is delivered to it.
 */
#define _GNU_SOURCE
#include "client.h"
#include "driver.h"
#include "shared_file.h"
#include "short_slice.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define SILENCE (1000 * MS)
#define RETRY (100 * MS)
/* If the arbiter does not state the length of a plan. */
#define USUAL_PLAN (5000 * MS)

struct client client;

static struct client_hooks hooks;

void client_set_hooks(struct client_hooks of) { hooks = of; }

/* The stage of this process: the helper thread starts when the program is about to use a card. */
enum { OUTSIDE, JOINED, READY };

static pthread_mutex_t setup = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
/* Guards `line`: a sender must not use a file that reuses its number after it was closed. */
static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int stage, is_ending, is_serving;
/* The line to the arbiter, and the table for an arbiter that comes after this one. */
static struct own_file line = {.fd = -1}, table_file = {.fd = -1};
static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];

uint64_t client_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t client_longest_hold_ns(void)
{
    struct ballast_grants *grants = atomic_load(&client.grants);
    return grants && grants->plan_ns ? grants->plan_ns : USUAL_PLAN;
}

void client_lock(void) { pthread_mutex_lock(&lock); }
void client_unlock(void) { pthread_mutex_unlock(&lock); }

bool client_is_orphan(const struct ballast_grants *grants, uint64_t now_ns)
{
    uint64_t beat = atomic_load(&((struct ballast_grants *)grants)->heartbeat_ns);
    return now_ns > beat && now_ns - beat > SILENCE;
}

void client_wait(const struct ballast_grants *grants, uint32_t kind, uint32_t seen,
                 uint64_t at_most_ns)
{
    uint64_t until_ns = client_now_ns() + at_most_ns;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    syscall(SYS_futex, &grants->changes, FUTEX_WAIT_BITSET, seen, &until, NULL, kind);
}

void client_wake_helpers(const struct ballast_grants *grants)
{
    syscall(SYS_futex, &grants->changes, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, BALLAST_HELPER);
}

void client_count_unknown(void)
{
    if (client_ready())
        atomic_fetch_add(&client.table->slots[client.slot].n_unknown, 1);
}

int client_card(const char *uuid)
{
    for (int card = 0; card < client.n_cards; card++) {
        if (!strcmp(client.uuids[card], uuid))
            return card;
    }
    return -1;
}

/* -- configuration --------------------------------------------------------------------------- */

/* gpu.conf: lines `card UUID MIB`. The mount is read-only and owned by root, so it is trusted. */
static void read_configuration(struct ballast_table *table)
{
    char path[4200], text[4096], *line, *rest = text;
    snprintf(path, sizeof path, "%s/gpu.conf", driver_home());
    snprintf(socket_path, sizeof socket_path, "%s/run/arbiter.sock", driver_home());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
    while ((line = strsep(&rest, "\n")) && client.n_cards < BALLAST_MAX_CARDS) {
        unsigned long long mib;
        int card = client.n_cards;
        if (sscanf(line, "card %47s %llu", client.uuids[card], &mib) != 2)
            continue;
        memcpy(table->cards[card].uuid, client.uuids[card], sizeof client.uuids[card]);
        table->cards[card].cap_bytes = (uint64_t)mib << 20;
        client.n_cards++;
    }
}

static struct ballast_table *private_table(void)
{
    void *at = mmap(NULL, sizeof *client.table, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* -- connection ------------------------------------------------------------------------------ */

/* One message with at most two descriptors. */
static ssize_t exchange(int to, struct ballast_message *message, int *files, int n, bool is_send)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {message, sizeof *message};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1};
    if (n) {
        whole.msg_control = control.room;
        whole.msg_controllen = is_send ? CMSG_SPACE((size_t)n * sizeof(int)) : sizeof control.room;
    }
    if (!is_send) {
        ssize_t got = recvmsg(to, &whole, MSG_CMSG_CLOEXEC);
        struct cmsghdr *head = CMSG_FIRSTHDR(&whole);
        if (head && head->cmsg_type == SCM_RIGHTS)
            memcpy(files, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
        return got;
    }
    if (n) {
        struct cmsghdr *head = CMSG_FIRSTHDR(&whole);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(head), files, (size_t)n * sizeof(int));
    }
    return sendmsg(to, &whole, MSG_NOSIGNAL);
}

/* Switch to the container's table, and set the slot there to what this process has charged. The
 * slot may be the one from before, or one that the arbiter has cleared since. */
static void adopt(struct ballast_table *table, int slot, int file)
{
    client_lock();
    for (int card = 0; card < client.n_cards; card++) {
        uint64_t there = table->slots[slot].used_bytes[card], here = client.charged[card];
        if (here > there)
            table_charge(table, slot, card, here - there);
        else if (there > here)
            table_give_back(table, slot, card, there - here);
    }
    client.table = table;
    client.slot = slot;
    own_file_set(&table_file, file);
    client_unlock();
}

static void set_line(int to)
{
    pthread_mutex_lock(&sending);
    own_file_set(&line, to);
    pthread_mutex_unlock(&sending);
}

/* `is_heard`: the arbiter accepted the connection and the HELLO. */
static bool connect_as(uint32_t version, bool *is_heard)
{
    size_t table_size = sizeof *client.table, grants_size = sizeof(struct ballast_grants);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ballast_message message = {.kind = BALLAST_HELLO, .value = version};
    struct timeval patience = {2, 0};
    int files[2] = {-1, -1}, to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool has_table = own_file_is_open(&table_file);
    memcpy(address.sun_path, socket_path, sizeof address.sun_path);
    message.pid = (uint64_t)getpid();
    /* Also for `connect`: a stopped arbiter accepts no connection, and its queue fills. */
    setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (to < 0 || connect(to, (struct sockaddr *)&address, sizeof address))
        goto refused;
    if (has_table && version > BALLAST_FEW_SLOTS_UNTIL)
        message.slot = (uint16_t)client.slot;
    else if (has_table && client.slot < BALLAST_FEW_SLOTS)
        message.card = (uint8_t)client.slot;
    if (exchange(to, &message, &table_file.fd, has_table, true) != sizeof message)
        goto refused;
    *is_heard = true;
    if (exchange(to, &message, files, 2, false) != sizeof message)
        goto refused;
    if (message.kind != BALLAST_WELCOME || message.value >= BALLAST_MAX_SLOTS)
        goto refused;
    void *table = map_checked(files[0], table_end(BALLAST_FEW_SLOTS), &table_size,
                              PROT_READ | PROT_WRITE);
    void *grants = map_checked(files[1], grants_size, &grants_size, PROT_READ);
    if (!table || !grants || table_end((int)message.value + 1) > table_size) {
        if (table)
            munmap(table, table_size);
        if (grants)
            munmap(grants, grants_size);
        goto refused;
    }
    adopt(table, (int)message.value, files[0]);
    close(files[1]);
    hooks.forget();
    set_line(to);
    /* The previous page stays mapped: a thread may be reading it. */
    atomic_store(&client.grants, grants);
    return true;
refused:
    for (int i = 0; i < 2; i++) {
        if (files[i] >= 0)
            close(files[i]);
    }
    if (to >= 0)
        close(to);
    return false;
}

/* An arbiter of the previous release hangs up on an unknown version. */
static bool connect_arbiter(void)
{
    bool is_heard = false;
    return connect_as(BALLAST_VERSION, &is_heard) ||
           (is_heard && connect_as(BALLAST_OLDEST, &is_heard));
}

bool client_send(enum ballast_kind kind, int card, uint32_t value)
{
    struct ballast_message message = {.kind = (uint8_t)kind, .card = (uint8_t)card, .value = value};
    pthread_mutex_lock(&sending);
    bool is_sent = own_file_is_open(&line) &&
                   send(line.fd, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
    pthread_mutex_unlock(&sending);
    return is_sent;
}

/* Whether the arbiter hung up, or the program closed the line. The arbiter sends nothing after
 * WELCOME. */
static bool is_cut(void)
{
    char byte;
    if (!own_file_is_open(&line))
        return true;
    ssize_t got = recv(line.fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* Reconnect if the arbiter hung up, or was not there. One thread at a time. */
static void reconnect(void)
{
    if (is_cut()) {
        set_line(-1);
        connect_arbiter();
    }
}

/* At exit the driver shuts down while our thread still runs; the thread must not call it any
 * more. A thread that waits for a long kernel is not waited for. */
static void at_exit(void)
{
    atomic_store(&is_ending, 1);
    for (int i = 0; i < 1000 && is_serving; i++)
        usleep(1000);
}

static uint64_t serve(void)
{
    uint64_t pause = RETRY;
    atomic_store(&is_serving, 1);
    if (!is_ending)
        pause = hooks.service();
    atomic_store(&is_serving, 0);
    return pause;
}

static void *help(void *nothing)
{
    uint64_t looked_ns = 0;
    request_short_slice();
    /* Sleeps end on time, not up to 50 us later. */
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        /* Read before the gates are checked, so that no later change is missed while asleep. */
        struct ballast_grants *grants = atomic_load(&client.grants);
        uint32_t changes = grants ? atomic_load(&grants->changes) : 0;
        uint64_t now = client_now_ns(), pause = serve();
        if (now - looked_ns >= RETRY) {
            looked_ns = now;
            reconnect();
        }
        if (grants)
            client_wait(grants, BALLAST_HELPER, changes, pause < RETRY ? pause : RETRY);
        else
            usleep(RETRY / 1000);
    }
    return nothing;
}

static void start_helper(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (!pthread_create(&thread, NULL, help, NULL))
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A forked child starts anew: otherwise it would keep the parent's connection open past the
 * parent's death, and it has no helper thread. */
static void in_child(void)
{
    pthread_mutex_init(&setup, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&sending, NULL);
    set_line(-1);
    own_file_set(&table_file, -1);
    client.n_cards = 0;
    client.table = NULL;
    client.slot = 0;
    memset(client.charged, 0, sizeof client.charged);
    atomic_store(&client.grants, NULL);
    hooks.start_anew();
    is_serving = 0;
    stage = OUTSIDE;
}

static void join(void)
{
    static bool has_handlers;
    if (!has_handlers) {
        pthread_atfork(NULL, NULL, in_child);
        /* Registered after the driver's own handlers, so it runs before them. */
        atexit(at_exit);
    }
    has_handlers = true;
    client.table = private_table();
    if (client.table)
        read_configuration(client.table);
    if (client.n_cards)
        connect_arbiter();
}

static void come_to(int next)
{
    pthread_mutex_lock(&setup);
    if (stage == OUTSIDE) {
        join();
        stage = JOINED;
    }
    if (stage < next) {
        if (client.n_cards) {
            reconnect();
            start_helper();
        }
        stage = READY;
    }
    pthread_mutex_unlock(&setup);
}

void client_join(void)
{
    if (stage == OUTSIDE)
        come_to(JOINED);
}

bool client_ready(void)
{
    if (stage != READY)
        come_to(READY);
    return client.n_cards > 0;
}
