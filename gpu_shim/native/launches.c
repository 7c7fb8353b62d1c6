/* Everything that puts work on the GPU's engine goes through the gate; captures are followed.
 * Copies from and to the host use other engines and are not gated.
 */
#include "client.h"
#include "driver.h"
#include "gate.h"
#include "names.h"

#include <stddef.h>
#include <stdint.h>

/* A memset or a copy within the device that is smaller than this is over before a gate would be. */
#define LARGE ((size_t)1 << 20)

void pools_settle_graphs(int card);

#define GATED(stream, call)          \
    do {                             \
        int card = gate_enter(stream); \
        int status = (call);         \
        gate_leave(card, stream);    \
        return status;               \
    } while (0)

#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz
#define IN_GRID gx, gy, gz, bx, by, bz

#define LAUNCH_KERNEL(name)                                                                     \
    HOOK(name)(void *f, GRID, unsigned shared, void *stream, void **arguments, void **extra)    \
    {                                                                                           \
        GATED(stream, ((int (*)(void *, GRID, unsigned, void *, void **, void **))driver_at(    \
                          IX_##name))(f, IN_GRID, shared, stream, arguments, extra));           \
    }

#define LAUNCH_COOPERATIVE(name)                                                                \
    HOOK(name)(void *f, GRID, unsigned shared, void *stream, void **arguments)                  \
    {                                                                                           \
        GATED(stream, REAL(name)(f, IN_GRID, shared, stream, arguments));                       \
    }

struct configuration {
    unsigned grid[6], shared;
    void *stream;
};

_Static_assert(offsetof(struct configuration, stream) == 32, "CUlaunchConfig");

#define LAUNCH_EX(name)                                                                         \
    HOOK(name)(const struct configuration *how, void *f, void **arguments, void **extra)        \
    {                                                                                           \
        void *stream = how ? how->stream : NULL;                                                \
        GATED(stream, REAL(name)(how, f, arguments, extra));                                    \
    }

#define LAUNCH_GRAPH(name)                                                                      \
    HOOK(name)(void *instance, void *stream)                                                    \
    {                                                                                           \
        int card = gate_enter(stream);                                                          \
        int status = REAL(name)(instance, stream);                                              \
        gate_leave(card, stream);                                                               \
        pools_settle_graphs(card);                                                              \
        return status;                                                                          \
    }


LAUNCH_KERNEL(cuLaunchKernel)
LAUNCH_KERNEL(cuLaunchKernel_ptsz)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)
LAUNCH_EX(cuLaunchKernelEx)
LAUNCH_EX(cuLaunchKernelEx_ptsz)
LAUNCH_GRAPH(cuGraphLaunch)
LAUNCH_GRAPH(cuGraphLaunch_ptsz)

HOOK(cuLaunchCooperativeKernelMultiDevice)(void *list, unsigned n, unsigned flags)
{
    GATED(NULL, REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags));
}

HOOK(cuLaunch)(void *f)
{
    GATED(NULL, REAL(cuLaunch)(f));
}

HOOK(cuLaunchGrid)(void *f, int width, int height)
{
    GATED(NULL, REAL(cuLaunchGrid)(f, width, height));
}

HOOK(cuLaunchGridAsync)(void *f, int width, int height, void *stream)
{
    GATED(stream, REAL(cuLaunchGridAsync)(f, width, height, stream));
}

HOOK(cuMemcpyDtoDAsync_v2)(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    if (bytes < LARGE)
        return REAL(cuMemcpyDtoDAsync_v2)(to, from, bytes, stream);
    GATED(stream, REAL(cuMemcpyDtoDAsync_v2)(to, from, bytes, stream));
}

HOOK(cuMemsetD8Async)(uint64_t to, unsigned char value, size_t n, void *stream)
{
    if (n < LARGE)
        return REAL(cuMemsetD8Async)(to, (unsigned)value, n, stream);
    GATED(stream, REAL(cuMemsetD8Async)(to, (unsigned)value, n, stream));
}

HOOK(cuMemsetD32Async)(uint64_t to, unsigned value, size_t n, void *stream)
{
    if (n < LARGE / 4)
        return REAL(cuMemsetD32Async)(to, value, n, stream);
    GATED(stream, REAL(cuMemsetD32Async)(to, value, n, stream));
}

/* -- captures -------------------------------------------------------------------------------- */

static int began(int status)
{
    if (!status)
        gate_capture(1);
    return status;
}

/* The first version had no mode. */
HOOK(cuStreamBeginCapture)(void *stream)
{
    return began(REAL(cuStreamBeginCapture)(stream));
}

HOOK(cuStreamBeginCapture_ptsz)(void *stream)
{
    return began(REAL(cuStreamBeginCapture_ptsz)(stream));
}

HOOK(cuStreamBeginCapture_v2)(void *stream, int mode)
{
    return began(REAL(cuStreamBeginCapture_v2)(stream, mode));
}

HOOK(cuStreamBeginCapture_v2_ptsz)(void *stream, int mode)
{
    return began(REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

HOOK(cuStreamBeginCaptureToGraph)(void *stream, void *graph, void *before, void *edges, size_t n,
                                  int mode)
{
    return began(REAL(cuStreamBeginCaptureToGraph)(stream, graph, before, edges, n, mode));
}

HOOK(cuStreamBeginCaptureToGraph_ptsz)(void *stream, void *graph, void *before, void *edges,
                                       size_t n, int mode)
{
    return began(REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, before, edges, n, mode));
}

/* A capture that was broken ends here too, with an error. */
HOOK(cuStreamEndCapture)(void *stream, void **graph)
{
    int status = REAL(cuStreamEndCapture)(stream, graph);
    gate_capture(-1);
    return status;
}

HOOK(cuStreamEndCapture_ptsz)(void *stream, void **graph)
{
    int status = REAL(cuStreamEndCapture_ptsz)(stream, graph);
    gate_capture(-1);
    return status;
}
