#define _GNU_SOURCE
#include "engine.h"
#include "device.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sched.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
/* How long a wait sleeps at most before it looks again: others come and go. */
#define LONGEST_SLEEP MS
#define BURY_EVERY (5 * MS)

static struct fake_engine *engine(void)
{
    struct fake_engine *of = &fake_card()->engine;
    uint32_t fresh = 0;
    if (of->is_ready == 2)
        return of;
    if (atomic_compare_exchange_strong(&of->is_ready, &fresh, 1)) {
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        /* A process may be killed with the lock. */
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&of->lock, &how);
        of->now_ns = fake_now_ns();
        of->is_ready = 2;
    }
    while (of->is_ready != 2)
        sched_yield();
    return of;
}

static void begin(struct fake_engine *of, struct fake_work *work)
{
    work->state = WORK_RUNS;
    work->start_ns = of->now_ns;
    uint32_t n = 0;
    for (uint32_t i = 0; work->n_peers && i < of->n_slots; i++) {
        struct fake_work *each = &of->work[i];
        n += each->state == WORK_RUNS && each->n_peers && each->group == work->group &&
             each->turn == work->turn;
    }
    work->is_waiting = work->flag_at || n < work->n_peers;
    for (uint32_t i = 0; work->n_peers && n == work->n_peers && i < of->n_slots; i++) {
        struct fake_work *each = &of->work[i];
        if (each->state == WORK_RUNS && each->n_peers && each->group == work->group &&
            each->turn == work->turn)
            each->is_waiting = 0;
    }
}

static void end(struct fake_engine *of, struct fake_work *work)
{
    work->state = WORK_ENDED;
    work->end_ns = of->now_ns;
    fake_log(work->pid, work->tag, work->card, work->start_ns, work->end_ns);
    for (uint32_t i = 0; i < of->n_slots; i++) {
        if (of->work[i].state == WORK_QUEUED && of->work[i].before == work->number &&
            of->work[i].pid == work->pid)
            begin(of, &of->work[i]);
    }
}

static uint64_t n_running(const struct fake_engine *of, int card)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < of->n_slots; i++)
        n += of->work[i].state == WORK_RUNS && of->work[i].card == card;
    return n;
}

/* What ends next on a card if nothing else comes, and when. */
static struct fake_work *next_of(struct fake_engine *of, int card, uint64_t *at_ns)
{
    struct fake_work *first = NULL;
    for (uint32_t i = 0; i < of->n_slots; i++) {
        struct fake_work *each = &of->work[i];
        if (each->state == WORK_RUNS && each->card == card && !each->is_waiting &&
            (!first || each->left_ns < first->left_ns))
            first = each;
    }
    *at_ns = first ? of->now_ns + first->left_ns * n_running(of, card) : UINT64_MAX;
    return first;
}

static void progress(struct fake_engine *of, uint64_t to_ns)
{
    uint64_t took = to_ns - of->now_ns;
    uint64_t n[FAKE_MAX_CARDS];
    for (int card = 0; card < FAKE_MAX_CARDS; card++)
        n[card] = n_running(of, card);
    for (uint32_t i = 0; took && i < of->n_slots; i++) {
        struct fake_work *each = &of->work[i];
        if (each->state != WORK_RUNS || each->is_waiting)
            continue;
        uint64_t part = took / n[each->card];
        each->left_ns -= part < each->left_ns ? part : each->left_ns;
    }
    of->now_ns = to_ns;
}

/* Processes that are gone leave nothing; those of other namespaces can't be told. */
static void bury(struct fake_engine *of)
{
    if (of->now_ns - of->buried_ns < BURY_EVERY)
        return;
    of->buried_ns = of->now_ns;
    uint32_t space = fake_own_space(), alive = 0;
    for (uint32_t i = 0; i < of->n_slots; i++) {
        struct fake_work *each = &of->work[i];
        if (each->state == WORK_FREE || each->space != space || each->pid == alive)
            continue;
        if (kill((pid_t)each->pid, 0) && errno == ESRCH) {
            if (each->state == WORK_RUNS)
                fake_log(each->pid, each->tag, each->card, each->start_ns, of->now_ns);
            each->state = WORK_FREE;
        } else {
            alive = each->pid;
        }
    }
}

/* Bring everything up to now, and take what is ours and has ended off the list. */
static void advance(struct fake_engine *of)
{
    uint64_t now_ns = fake_now_ns();
    uint32_t pid = (uint32_t)getpid(), space = fake_own_space(), last = 0;
    for (;;) {
        struct fake_work *next = NULL;
        uint64_t first_ns = UINT64_MAX, at_ns;
        for (int card = 0; card < FAKE_MAX_CARDS; card++) {
            struct fake_work *found = next_of(of, card, &at_ns);
            if (found && at_ns < first_ns) {
                first_ns = at_ns;
                next = found;
            }
        }
        if (!next || first_ns > now_ns)
            break;
        progress(of, first_ns);
        end(of, next);
    }
    if (now_ns > of->now_ns)
        progress(of, now_ns);
    bury(of);
    for (uint32_t i = 0; i < of->n_slots; i++) {
        struct fake_work *each = &of->work[i];
        bool is_ours = each->state != WORK_FREE && each->pid == pid && each->space == space;
        if (is_ours && each->state == WORK_RUNS && each->flag_at &&
            *(const volatile uint32_t *)(uintptr_t)each->flag_at) {
            each->flag_at = 0;
            each->is_waiting = 0;
        }
        if (is_ours && each->state == WORK_ENDED) {
            uint64_t *log = (uint64_t *)(uintptr_t)each->log_at;
            if (log) {
                log[0] = each->start_ns;
                log[1] = each->end_ns;
            }
            each->state = WORK_FREE;
        }
        if (each->state != WORK_FREE)
            last = i + 1;
    }
    of->n_slots = last;
}

static struct fake_engine *enter(void)
{
    struct fake_engine *of = engine();
    if (pthread_mutex_lock(&of->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&of->lock);
    advance(of);
    return of;
}

static void leave(struct fake_engine *of) { pthread_mutex_unlock(&of->lock); }

/* This process's work with that number; NULL: it has ended. */
static struct fake_work *find(struct fake_engine *of, int card, uint64_t number, bool is_all)
{
    uint32_t pid = (uint32_t)getpid(), space = fake_own_space();
    for (uint32_t i = 0; i < of->n_slots; i++) {
        struct fake_work *each = &of->work[i];
        if (each->state == WORK_FREE || each->pid != pid || each->space != space)
            continue;
        if (is_all ? each->card == card && each->number <= number : each->number == number)
            return each;
    }
    return NULL;
}

uint64_t fake_queue(int card, uint64_t before, const struct fake_order *order)
{
    static _Atomic uint32_t turns[FAKE_MAX_CARDS][64];
    struct fake_engine *of = enter();
    uint32_t slot = 0;
    while (slot < FAKE_MAX_WORK && of->work[slot].state != WORK_FREE)
        slot++;
    if (slot == FAKE_MAX_WORK)
        abort(); /* a driver's queue is full at 1024 launches: the program would wait here */
    if (slot >= of->n_slots)
        of->n_slots = slot + 1;
    struct fake_work *work = &of->work[slot];
    *work = (struct fake_work){
        .number = ++of->last_number,
        .before = before && find(of, card, before, false) ? before : 0,
        .state = WORK_QUEUED,
        .pid = (uint32_t)getpid(),
        .space = fake_own_space(),
        .tag = fake_tag(),
        .card = (uint16_t)card,
        .group = order->group,
        .n_peers = order->n_peers,
        .left_ns = order->took_ns,
        .flag_at = (uintptr_t)order->flag,
        .log_at = (uintptr_t)order->log,
    };
    if (order->n_peers)
        work->turn = atomic_fetch_add(&turns[card][order->group % 64], 1);
    uint64_t number = work->number;
    if (!work->before)
        begin(of, work);
    leave(of);
    return number;
}

bool fake_is_done(int card, uint64_t number, bool is_all)
{
    if (!number)
        return true;
    struct fake_engine *of = enter();
    bool is_done = !find(of, card, number, is_all);
    leave(of);
    return is_done;
}

static bool is_spinning_driver(void)
{
    static _Atomic int said = -1;
    if (said < 0)
        said = getenv("FAKECUDA_SPIN") != NULL;
    return said;
}

void fake_wait(int card, uint64_t number, bool is_all, bool is_blocking)
{
    while (number) {
        struct fake_engine *of = enter();
        struct fake_work *left = find(of, card, number, is_all);
        uint64_t at_ns, wake_ns = of->now_ns + LONGEST_SLEEP;
        bool is_next = left && next_of(of, card, &at_ns) == left;
        if (is_next && at_ns < wake_ns)
            wake_ns = at_ns;
        else
            is_next = false;
        leave(of);
        if (!left)
            return;
        if (is_spinning_driver() && !is_blocking) {
            for (uint64_t until = fake_now_ns() + 20000; fake_now_ns() < until;)
                continue;
        } else {
            fake_sleep_until(wake_ns, is_next);
        }
    }
}
