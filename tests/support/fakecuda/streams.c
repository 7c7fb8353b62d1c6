/* Streams, events, capture, graphs and launches. Nothing runs; the engine says what would, when, and
 * logs it. Kernels, by name:
 *
 *   spin_5000     takes 5000 microseconds
 *   meet_7_2_500  is of a collective: waits for one of the same group (7) on each of 2 ranks, then
 *                 takes 500 microseconds
 *   await         waits until the host writes to where its first argument points
 *   spin, burn    take what their first argument says, in nanoseconds, and write when they ran where
 *                 the second points to
 *   empty         takes nothing
 *
 * Calls that the driver forbids while a stream captures fail, and break every capture under way.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_KERNELS = 4096, SPIN = 1, AWAIT = 2, INVALIDATED = 901 };

/* `last` is the number of what was queued last, `done` what is known to have ended. */
struct stream {
    _Atomic uint64_t last, done;
    int device;
    struct graph *capture;
    unsigned n_breaches;
    struct stream *next;
};

struct graph {
    uint64_t took_ns;
    uint64_t n_nodes;
};

/* Of a stream's work, or (`is_all`) of all work of the card. */
struct event {
    uint64_t number;
    unsigned n_resets;
    int device, is_second;
    int is_blocking, is_all;
    struct event *next;
};

static struct kernel {
    char name[32];
    struct fake_order order;
    int kind;
} kernels[MAX_KERNELS];

static struct stream legacy[FAKE_MAX_CARDS] = {{.device = 0}, {.device = 1}};
/* The driver's: they end with their context, whether the program destroys them or not. */
static struct stream *_Atomic all_streams;
static struct event *_Atomic all_events;
static _Atomic uint64_t last_of[FAKE_MAX_CARDS];
static _Atomic int n_captures;
static _Atomic unsigned n_breaches;
static __thread int capture_mode; /* 0 global, 1 thread local, 2 relaxed */

/* Handles 0, 1 and 2 mean the default streams. */
static struct stream *stream_of(void *handle)
{
    return (uintptr_t)handle < 3 ? &legacy[fake_device] : handle;
}

static void run(struct stream *stream, const struct fake_order *order)
{
    uint64_t last = stream->last;
    bool is_nothing = !order->took_ns && !order->log && !order->flag && !order->n_peers;
    if (is_nothing && (last == stream->done || fake_is_done(stream->device, last, false))) {
        stream->done = last;
        return;
    }
    uint64_t number = fake_queue(stream->device, last, order);
    stream->last = number;
    last = last_of[stream->device];
    while (last < number &&
           !atomic_compare_exchange_weak(&last_of[stream->device], &last, number))
        continue;
}

void fake_run_on(void *handle, uint64_t n, uint64_t each_ns)
{
    run(stream_of(handle), &(struct fake_order){.took_ns = n * each_ns});
}

int cuModuleLoadData(void **module, const void *image) { (void)image; *module = legacy; return 0; }

static bool is_known(const char *name, struct kernel *made)
{
    unsigned us, group, n_peers;
    if (sscanf(name, "spin_%u", &us) == 1)
        made->order.took_ns = us * UINT64_C(1000);
    else if (sscanf(name, "meet_%u_%u_%u", &group, &n_peers, &us) == 3)
        made->order = (struct fake_order){us * UINT64_C(1000), NULL, NULL, group, n_peers};
    else if (!strcmp(name, "spin") || !strcmp(name, "burn"))
        made->kind = SPIN;
    else if (!strcmp(name, "await"))
        made->kind = AWAIT;
    else
        return !strcmp(name, "empty");
    return true;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    for (int i = 0; i < MAX_KERNELS; i++) {
        struct kernel *at = &kernels[i];
        if (!at->name[0] && !is_known(name, at))
            return NOT_FOUND;
        if (!at->name[0])
            snprintf(at->name, sizeof at->name, "%s", name);
        *function = at;
        if (!strcmp(at->name, name))
            return 0;
    }
    return NOT_FOUND;
}

static int launch(const struct kernel *kernel, void *handle, void **arguments)
{
    struct stream *stream = stream_of(handle);
    struct fake_order order = kernel->order;
    if (kernel->kind == SPIN) {
        order.took_ns = *(uint64_t *)arguments[0];
        order.log = *(uint64_t **)arguments[1];
    } else if (kernel->kind == AWAIT) {
        order.flag = *(uint32_t **)arguments[0];
    }
    if (stream->capture) {
        stream->capture->took_ns += order.took_ns;
        stream->capture->n_nodes++;
        return 0;
    }
    run(stream, &order);
    return 0;
}

#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz
#define UNUSED_GRID (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared

int cuLaunchKernel(void *f, GRID, unsigned shared, void *stream, void **args, void **extra)
{
    UNUSED_GRID, (void)extra;
    return launch(f, stream, args);
}

int cuLaunchKernel_ptsz(void *f, GRID, unsigned shared, void *stream, void **args, void **extra)
{
    UNUSED_GRID, (void)extra;
    return launch(f, stream, args);
}

int cuLaunchCooperativeKernel(void *f, GRID, unsigned shared, void *stream, void **args)
{
    UNUSED_GRID;
    return launch(f, stream, args);
}

struct config {
    unsigned grid[6], shared;
    void *stream;
};

int cuLaunchKernelEx(const struct config *config, void *f, void **args, void **extra)
{
    (void)extra;
    return launch(f, config->stream, args);
}

int cuStreamCreate(void **stream, unsigned flags)
{
    struct stream *made = calloc(1, sizeof *made), *first = all_streams;
    (void)flags;
    made->device = fake_device;
    do
        made->next = first;
    while (!atomic_compare_exchange_weak(&all_streams, &first, made));
    *stream = made;
    return 0;
}

/* Its work goes on to its end. */
int cuStreamDestroy_v2(void *stream) { (void)stream; return 0; }

/* What the driver forbids while a stream captures (`is_strict`: also to relaxed threads). */
static bool is_breach(bool is_strict)
{
    if (!n_captures || (capture_mode == 2 && !is_strict))
        return false;
    n_breaches++;
    return true;
}

int cuStreamSynchronize(void *handle)
{
    struct stream *stream = stream_of(handle);
    if (is_breach(false))
        return CAPTURE_UNSUPPORTED;
    uint64_t last = stream->last;
    if (last != stream->done)
        fake_wait(stream->device, last, false, false);
    stream->done = last;
    fake_release_pools();
    return 0;
}

int cuStreamQuery(void *handle)
{
    struct stream *stream = stream_of(handle);
    if (is_breach(false))
        return CAPTURE_UNSUPPORTED;
    return fake_is_done(stream->device, stream->last, false) ? 0 : NOT_READY;
}

int cuCtxSynchronize(void)
{
    if (is_breach(true))
        return CAPTURE_UNSUPPORTED;
    fake_wait(fake_device, last_of[fake_device], true, false);
    fake_release_pools();
    return 0;
}

int cuEventCreate(void **event, unsigned flags)
{
    struct event *made = calloc(1, sizeof *made);
    made->is_blocking = flags & 1;
    made->n_resets = fake_n_resets;
    made->device = fake_device;
    made->is_second = fake_is_second;
    struct event *first = all_events;
    do
        made->next = first;
    while (!atomic_compare_exchange_weak(&all_events, &first, made));
    *event = made;
    return 0;
}

/* One whose context is gone is no event any more: a driver may end the program, and this one does. */
static struct event *known(void *event)
{
    if (((struct event *)event)->n_resets != fake_n_resets)
        abort();
    return event;
}

int cuEventDestroy_v2(void *event) { known(event); return 0; }

int cuEventRecord(void *event, void *stream)
{
    if (stream_of(stream)->capture)
        return CAPTURE_UNSUPPORTED;
    if (known(event)->device != fake_device || known(event)->is_second != fake_is_second)
        return INVALID_HANDLE;
    known(event)->number = stream_of(stream)->last;
    known(event)->is_all = 0;
    return 0;
}

/* Of all streams of the context; a capture in any of them is broken by it. */
int cuCtxRecordEvent(void *context, void *event)
{
    int device = fake_device_of(context);
    if (getenv("FAKECUDA_OLD")) /* before CUDA 12.5 */
        return NOT_SUPPORTED;
    if (is_breach(true))
        return CAPTURE_UNSUPPORTED;
    if (known(event)->device != device || known(event)->is_second != fake_is_second_of(context))
        return INVALID_HANDLE;
    known(event)->number = last_of[device];
    known(event)->is_all = 1;
    return 0;
}

int cuEventQuery(void *event)
{
    struct event *of = known(event);
    if (is_breach(false))
        return CAPTURE_UNSUPPORTED;
    return fake_is_done(of->device, of->number, of->is_all) ? 0 : NOT_READY;
}

int cuEventSynchronize(void *event)
{
    struct event *of = known(event);
    if (is_breach(false))
        return CAPTURE_UNSUPPORTED;
    fake_wait(of->device, of->number, of->is_all, of->is_blocking);
    fake_release_pools();
    return 0;
}

/* -- capture and graphs ---------------------------------------------------------------------- */

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}

int cuStreamBeginCapture_v2(void *handle, int mode)
{
    struct stream *stream = stream_of(handle);
    (void)mode;
    stream->capture = calloc(1, sizeof(struct graph));
    stream->n_breaches = n_breaches;
    n_captures++;
    /* A driver takes its time: what another thread does meanwhile is already forbidden. */
    usleep(1);
    return 0;
}

int cuStreamEndCapture(void *handle, void **graph)
{
    struct stream *stream = stream_of(handle);
    *graph = stream->capture;
    stream->capture = NULL;
    n_captures--;
    if (stream->n_breaches == n_breaches)
        return 0;
    free(*graph);
    *graph = NULL;
    return INVALIDATED;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    if ((uintptr_t)stream < 3 && n_captures && capture_mode != 2)
        return CAPTURE_UNSUPPORTED;
    *status = stream_of(stream)->capture ? 1 : 0;
    return 0;
}

int cuGraphInstantiateWithFlags(void **instance, void *graph, unsigned long long flags)
{
    struct graph *made = malloc(sizeof *made);
    (void)flags;
    *made = *(struct graph *)graph;
    *instance = made;
    return 0;
}

int cuGraphExecDestroy(void *instance) { free(instance); return 0; }

int cuGraphDestroy(void *graph) { free(graph); return 0; }

int cuGraphLaunch(struct graph *instance, void *stream)
{
    fake_launch_nodes();
    run(stream_of(stream), &(struct fake_order){.took_ns = instance->took_ns});
    return 0;
}
