/* Bounds what a program has queued on a card while other containers want it, so that a lease ends
 * soon after its deadline. A program alone on its cards is never held here.
 *
 * A kernel that has not been timed yet, or that takes 50 ms or longer, runs alone: the next launch
 * waits until it has ended. Of kernels from 5 ms on, one runs and one is queued. Shorter ones are
 * counted in batches that take 2 to 5 ms, and two batches may be queued. An event marks the end of
 * each.
 *
 * A kernel may depend on the launch that we hold, by a flag or by work on another stream. So a
 * launch is held for one plan at most; then launches pass until that kernel has ended.
 */
#define _GNU_SOURCE
#include "pace.h"
#include "client.h"
#include "driver.h"
#include "names.h"

#include <pthread.h>
#include <unistd.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define N_TIMES 1024
#define LONGEST_BATCH (5 * MS)
#define SHORTEST_BATCH (2 * MS)
#define ALONE_FROM (50 * MS)
#define MOST_IN_BATCH 1024

/* Run times of functions and graphs in nanoseconds, by handle. On a hash collision the newer one
 * replaces the older, and both are timed anew. */
static struct {
    _Atomic(const void *) what;
    _Atomic uint64_t took_ns;
} times[N_TIMES];

/* The event of a mark belongs to the context that it marked last. `ended_ns` is when the last
 * mark was seen to have ended. */
static struct pace {
    pthread_mutex_t lock;
    _Atomic uint32_t n_launches, every;
    _Atomic int n_marks;
    _Atomic bool is_alone, is_given_up;
    int first;
    bool has_waited;
    uint64_t ended_ns;
    struct mark {
        void *event, *context;
        const void *what;
        uint64_t recorded_ns;
    } marks[2];
} paces[BALLAST_MAX_CARDS] = {
    [0 ... BALLAST_MAX_CARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER, .every = 1},
};

/* -- times of kernels ------------------------------------------------------------------------ */

static size_t place_of(const void *what)
{
    return (size_t)((uintptr_t)what * UINT64_C(0x9e3779b97f4a7c15) >> 54) % N_TIMES;
}

/* The measured run time; UINT64_MAX: not timed yet. Copies and fills are short. */
static uint64_t time_of(const void *what)
{
    size_t at = place_of(what);
    if (!what)
        return 0;
    return times[at].what == what ? times[at].took_ns : UINT64_MAX;
}

static void learn(const void *what, uint64_t took_ns)
{
    size_t at = place_of(what);
    if (!what)
        return;
    times[at].what = NULL;
    times[at].took_ns = took_ns;
    times[at].what = what;
}

/* -- marks: callers hold the lock ------------------------------------------------------------ */

/* A mark has been passed. Without a wait for it, its time is only an upper bound. */
static void passed(struct pace *pace)
{
    uint64_t now = client_now_ns(), began = pace->marks[pace->first].recorded_ns;
    const void *what = pace->marks[pace->first].what;
    uint64_t took = now - (began > pace->ended_ns ? began : pace->ended_ns);
    pace->ended_ns = now;
    pace->first ^= 1;
    pace->n_marks--;
    pace->is_alone = pace->is_given_up = false;
    if (!pace->has_waited && took > SHORTEST_BATCH)
        return;
    pace->has_waited = false;
    if (what)
        learn(what, took);
    else if (took > 4 * LONGEST_BATCH)
        pace->every = 1;
    else if (took > LONGEST_BATCH && pace->every > 1)
        pace->every /= 2;
    else if (took < SHORTEST_BATCH && pace->every < MOST_IN_BATCH)
        pace->every *= 2;
}

static void look(struct pace *pace)
{
    int mode = RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    while (pace->n_marks && REAL(cuEventQuery)(pace->marks[pace->first].event) != NOT_READY)
        passed(pace);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

static void put(struct pace *pace, void *stream, const void *what)
{
    void *context = NULL;
    struct mark *mark = &pace->marks[pace->first ^ (pace->n_marks & 1)];
    if (pace->n_marks == 2 || REAL(cuCtxGetCurrent)(&context))
        return;
    if (mark->event && mark->context != context) {
        REAL(cuEventDestroy_v2)(mark->event);
        mark->event = NULL;
    }
    mark->context = context;
    if (!mark->event && REAL(cuEventCreate)(&mark->event, BLOCKING_WITHOUT_TIME)) {
        mark->event = NULL;
        return;
    }
    if (!REAL(cuEventRecord)(mark->event, stream)) {
        mark->what = what;
        mark->recorded_ns = client_now_ns();
        pace->n_marks++;
    }
}

/* -- launches -------------------------------------------------------------------------------- */

static bool is_own_batch(const struct pace *pace, uint64_t took_ns, bool is_capturing)
{
    return took_ns >= LONGEST_BATCH || is_capturing || pace->n_launches % pace->every == 0;
}

void pace_before(int card, const void *what, bool is_capturing)
{
    struct pace *pace = &paces[card];
    uint64_t took_ns = time_of(what), began_ns = 0;
    int n_allowed = took_ns >= ALONE_FROM ? 0 : 1;
    if (!pace->n_marks || (!pace->is_alone && !is_own_batch(pace, took_ns, is_capturing)))
        return;
    for (;;) {
        pthread_mutex_lock(&pace->lock);
        look(pace);
        bool is_free = pace->n_marks <= (pace->is_alone ? 0 : n_allowed);
        uint64_t now = client_now_ns(), waited;
        began_ns = began_ns ? began_ns : now;
        waited = now - began_ns;
        if (!is_free && waited > client_longest_hold_ns())
            pace->is_given_up = true;
        is_free |= pace->is_given_up;
        pace->has_waited |= !is_free;
        pthread_mutex_unlock(&pace->lock);
        if (is_free)
            return;
        uint64_t pause = waited / 128;
        usleep((unsigned)((pause < 20 * US ? 20 * US : pause > MS ? MS : pause) / US));
    }
}

void pace_after(int card, void *stream, const void *what, bool is_capturing)
{
    struct pace *pace = &paces[card];
    uint64_t took_ns = time_of(what);
    pace->n_launches++;
    if (!is_own_batch(pace, took_ns, is_capturing))
        return;
    int mode = RELAXED;
    pthread_mutex_lock(&pace->lock);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    put(pace, stream, took_ns >= LONGEST_BATCH ? what : NULL);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    if (took_ns >= ALONE_FROM)
        pace->is_alone = pace->n_marks > 0;
    pthread_mutex_unlock(&pace->lock);
}

bool pace_is_empty(int card)
{
    struct pace *pace = &paces[card];
    pthread_mutex_lock(&pace->lock);
    if (pace->n_marks)
        look(pace);
    bool is_empty = !pace->n_marks;
    pthread_mutex_unlock(&pace->lock);
    return is_empty;
}

/* Drop the marks; events end with their contexts. NULL: of all contexts. */
static void clear(struct pace *pace, const void *context)
{
    pace->n_marks = 0;
    pace->is_alone = pace->is_given_up = false;
    for (int at = 0; at < 2; at++) {
        if (!context || pace->marks[at].context == context)
            pace->marks[at] = (struct mark){0};
    }
}

void pace_forget(const void *context)
{
    for (int card = 0; context && card < BALLAST_MAX_CARDS; card++) {
        pthread_mutex_lock(&paces[card].lock);
        if (paces[card].marks[0].context == context || paces[card].marks[1].context == context)
            clear(&paces[card], context);
        pthread_mutex_unlock(&paces[card].lock);
    }
}

void pace_forget_all(void)
{
    for (int card = 0; card < BALLAST_MAX_CARDS; card++) {
        pthread_mutex_init(&paces[card].lock, NULL);
        clear(&paces[card], NULL);
    }
}
