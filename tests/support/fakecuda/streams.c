/* Streams, events, capture, graphs and launches. A stream is the time at which it is free; a
 * kernel is the microseconds in its name (spin_5000), so nothing runs and everything is logged.
 * Three more take what their first argument says, in nanoseconds, and write when they ran where
 * the second points to: spin and burn; and empty, which takes nothing.
 */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The handle of what takes its time from its arguments. */
#define ASKS ((uintptr_t)8)

struct stream {
    _Atomic uint64_t tail_ns;
    struct graph *capture;
};

struct graph {
    uint64_t took_ns;
    uint64_t n_nodes;
};

struct event {
    _Atomic uint64_t done_ns;
    unsigned n_resets;
    int device;
};

static struct stream legacy[2];
static _Atomic uint64_t last_tail_ns;
static _Atomic int n_captures;
static __thread int capture_mode; /* 0 global, 1 thread local, 2 relaxed */

/* Handles 0, 1 and 2 mean the default streams. */
static struct stream *stream_of(void *handle)
{
    return (uintptr_t)handle < 3 ? &legacy[fake_device] : handle;
}

static void run(struct stream *stream, uint64_t took_ns)
{
    uint64_t start = fake_now_ns(), tail = stream->tail_ns;
    if (tail > start)
        start = tail;
    stream->tail_ns = start + took_ns;
    uint64_t last = last_tail_ns;
    while (last < start + took_ns &&
           !atomic_compare_exchange_weak(&last_tail_ns, &last, start + took_ns))
        continue;
    fake_log(fake_device, start, start + took_ns);
}

void fake_run_on(void *handle, uint64_t n, uint64_t each_ns) { run(stream_of(handle), n * each_ns); }

int cuModuleLoadData(void **module, const void *image) { (void)image; *module = legacy; return 0; }

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    unsigned microseconds;
    (void)module;
    *function = (void *)ASKS;
    if (!strcmp(name, "spin") || !strcmp(name, "burn"))
        return 0;
    *function = NULL;
    if (!strcmp(name, "empty"))
        return 0;
    if (sscanf(name, "spin_%u", &microseconds) != 1)
        return NOT_FOUND;
    *function = (void *)((uintptr_t)microseconds << 4);
    return 0;
}

static int launch(void *function, void *handle, void **arguments)
{
    struct stream *stream = stream_of(handle);
    uint64_t took_ns = ((uintptr_t)function >> 4) * 1000, *log = NULL;
    if ((uintptr_t)function == ASKS) {
        took_ns = *(uint64_t *)arguments[0];
        log = *(uint64_t **)arguments[1];
    }
    if (stream->capture) {
        stream->capture->took_ns += took_ns;
        stream->capture->n_nodes++;
        return 0;
    }
    run(stream, took_ns);
    if (log) {
        log[0] = stream->tail_ns - took_ns;
        log[1] = stream->tail_ns;
    }
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
    (void)flags;
    *stream = calloc(1, sizeof(struct stream));
    return 0;
}

int cuStreamDestroy_v2(void *stream) { free(stream); return 0; }

/* Waiting while somebody captures breaks the capture, unless this thread is relaxed. */
static int forbidden(void) { return n_captures && capture_mode != 2; }

int cuStreamSynchronize(void *stream)
{
    if (forbidden())
        return CAPTURE_UNSUPPORTED;
    fake_sleep_until(stream_of(stream)->tail_ns);
    fake_release_pools();
    return 0;
}

int cuCtxSynchronize(void)
{
    if (n_captures)
        return CAPTURE_UNSUPPORTED;
    fake_sleep_until(last_tail_ns);
    fake_release_pools();
    return 0;
}

int cuEventCreate(void **event, unsigned flags)
{
    struct event *made = calloc(1, sizeof *made);
    (void)flags;
    made->n_resets = fake_n_resets;
    made->device = fake_device;
    *event = made;
    return 0;
}

int cuEventDestroy_v2(void *event) { free(event); return 0; }

/* One whose context is gone is no event any more: a driver may end the program, and this one does. */
static struct event *known(void *event)
{
    if (((struct event *)event)->n_resets != fake_n_resets)
        abort();
    return event;
}

int cuEventRecord(void *event, void *stream)
{
    if (stream_of(stream)->capture)
        return CAPTURE_UNSUPPORTED;
    if (known(event)->device != fake_device)
        return INVALID_HANDLE;
    known(event)->done_ns = stream_of(stream)->tail_ns;
    return 0;
}

int cuEventQuery(void *event)
{
    if (forbidden())
        return CAPTURE_UNSUPPORTED;
    return fake_now_ns() >= known(event)->done_ns ? 0 : NOT_READY;
}

int cuEventSynchronize(void *event)
{
    if (forbidden())
        return CAPTURE_UNSUPPORTED;
    fake_sleep_until(known(event)->done_ns);
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

int cuStreamBeginCapture_v2(void *stream, int mode)
{
    (void)mode;
    stream_of(stream)->capture = calloc(1, sizeof(struct graph));
    n_captures++;
    return 0;
}

int cuStreamEndCapture(void *stream, void **graph)
{
    *graph = stream_of(stream)->capture;
    stream_of(stream)->capture = NULL;
    n_captures--;
    return 0;
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
    (void)flags;
    *instance = graph;
    return 0;
}

int cuGraphLaunch(struct graph *instance, void *stream)
{
    run(stream_of(stream), instance->took_ns);
    return 0;
}
