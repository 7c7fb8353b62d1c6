/* Tells whether this process has unfinished work on a card, without busy-waiting.
 *
 * An event that records a whole context marks all launches; the helper thread polls it. The
 * driver forbids such a mark while a stream captures, and the mark invalidates the capture. So a
 * capture begins under the lock that guards the mark, and during one the events after single
 * launches (pace.c) are used instead. Drivers before CUDA 12.5 have no such event; there the
 * helper waits for the context, and a capture that begins meanwhile waits for the helper, one
 * plan at most.
 */
#define _GNU_SOURCE
#include "drain.h"
#include "client.h"
#include "driver.h"
#include "names.h"
#include "pace.h"

#include <pthread.h>
#include <unistd.h>

#define MAX_CONTEXTS 32

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Atomic int n_captures;
static _Atomic bool is_waiting;

static struct context {
    void *handle;
    int card, n_attached;
    void *event;
    bool is_marked;
} contexts[MAX_CONTEXTS];

/* -- captures -------------------------------------------------------------------------------- */

bool drain_is_capturing(void) { return n_captures; }

void drain_begin_capture(void)
{
    uint64_t began = client_now_ns();
    pthread_mutex_lock(&lock);
    n_captures++;
    pthread_mutex_unlock(&lock);
    while (is_waiting && client_now_ns() - began < client_longest_hold_ns())
        usleep(50);
}

/* Never below 0: an end whose beginning we did not see is not counted. */
void drain_end_capture(void)
{
    int before = n_captures;
    while (before > 0 && !atomic_compare_exchange_weak(&n_captures, &before, before - 1))
        continue;
}

/* -- contexts -------------------------------------------------------------------------------- */

void drain_hold_contexts(void) { pthread_mutex_lock(&lock); }
void drain_release_contexts(void) { pthread_mutex_unlock(&lock); }

static struct context *find(const void *handle)
{
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        if (contexts[i].handle == handle)
            return &contexts[i];
    }
    return NULL;
}

void drain_add_context(void *handle, int card)
{
    pthread_mutex_lock(&lock);
    struct context *free_ = find(NULL);
    if (!find(handle) && free_)
        *free_ = (struct context){.handle = handle, .card = card};
    pthread_mutex_unlock(&lock);
}

void drain_remove_context(void *handle)
{
    pthread_mutex_lock(&lock);
    struct context *found = handle ? find(handle) : NULL;
    if (found)
        *found = (struct context){0};
    pthread_mutex_unlock(&lock);
    pace_forget(handle);
}

void drain_attach_context(void *handle)
{
    pthread_mutex_lock(&lock);
    struct context *found = handle ? find(handle) : NULL;
    if (found)
        found->n_attached++;
    pthread_mutex_unlock(&lock);
}

bool drain_detach_context(void *handle)
{
    pthread_mutex_lock(&lock);
    struct context *found = handle ? find(handle) : NULL;
    bool is_last = !found || !found->n_attached;
    if (!is_last)
        found->n_attached--;
    pthread_mutex_unlock(&lock);
    return is_last;
}

void drain_forget_all(void)
{
    pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    lock = fresh;
    n_captures = 0;
    is_waiting = false;
    for (int i = 0; i < MAX_CONTEXTS; i++)
        contexts[i] = (struct context){0};
}

/* -- marks ----------------------------------------------------------------------------------- */

static bool mark(struct context *context)
{
    void *popped;
    if (!context->event) {
        if (REAL(cuCtxPushCurrent_v2)(context->handle))
            return false;
        int status = REAL(cuEventCreate)(&context->event, BLOCKING_WITHOUT_TIME);
        REAL(cuCtxPopCurrent_v2)(&popped);
        if (status) {
            context->event = NULL;
            return false;
        }
    }
    return !REAL(cuCtxRecordEvent)(context->handle, context->event);
}

static void wait_for(void *handle)
{
    if (!REAL(cuCtxPushCurrent_v2)(handle)) {
        REAL(cuCtxSynchronize)();
        REAL(cuCtxPopCurrent_v2)(&handle);
    }
}

void drain_mark(int card)
{
    int mode = RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        struct context *context = &contexts[i];
        pthread_mutex_lock(&lock);
        void *old = NULL;
        context->is_marked = false;
        if (context->handle && context->card == card && !n_captures) {
            context->is_marked = mark(context);
            old = context->is_marked ? NULL : context->handle;
            is_waiting = old;
        }
        pthread_mutex_unlock(&lock);
        if (old)
            wait_for(old);
        is_waiting = false;
    }
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

bool drain_is_done(int card)
{
    int mode = RELAXED;
    bool is_done = !n_captures || pace_is_empty(card);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    for (int i = 0; is_done && i < MAX_CONTEXTS; i++) {
        struct context *context = &contexts[i];
        pthread_mutex_lock(&lock);
        if (context->handle && context->card == card && context->is_marked)
            is_done = REAL(cuEventQuery)(context->event) != NOT_READY;
        pthread_mutex_unlock(&lock);
    }
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return is_done;
}
