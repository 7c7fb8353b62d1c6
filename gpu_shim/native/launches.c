/* Gates kernels and graphs, and tracks captures. Copies are in copies.c. */
#include "drain.h"
#include "driver.h"
#include "gate.h"
#include "names.h"
#include "pools.h"

#include <stddef.h>
#include <stdint.h>

#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz
#define IN_GRID gx, gy, gz, bx, by, bz

#define LAUNCH_KERNEL(name, of)                                                                 \
    HOOK(name)(void *f, GRID, unsigned shared, void *stream, void **arguments, void **extra)    \
    {                                                                                           \
        GATED(of(stream), f, ((int (*)(void *, GRID, unsigned, void *, void **, void **))driver_at( \
                              IX_##name))(f, IN_GRID, shared, stream, arguments, extra));       \
    }

#define LAUNCH_COOPERATIVE(name, of)                                                            \
    HOOK(name)(void *f, GRID, unsigned shared, void *stream, void **arguments)                  \
    {                                                                                           \
        GATED(of(stream), f, REAL(name)(f, IN_GRID, shared, stream, arguments));                   \
    }

struct configuration {
    unsigned grid[6], shared;
    void *stream;
};

_Static_assert(offsetof(struct configuration, stream) == 32, "CUlaunchConfig");

#define LAUNCH_EX(name, of)                                                                     \
    HOOK(name)(const struct configuration *how, void *f, void **arguments, void **extra)        \
    {                                                                                           \
        void *stream = how ? how->stream : NULL;                                                \
        GATED(of(stream), f, REAL(name)(how, f, arguments, extra));                                \
    }

#define LAUNCH_GRAPH(name, of)                                                                  \
    HOOK(name)(void *instance, void *stream)                                                    \
    {                                                                                           \
        int card = gate_enter(of(stream), instance);                                                  \
        int status = REAL(name)(instance, stream);                                              \
        gate_leave(card, of(stream), instance);                                                       \
        pools_settle_graphs(card);                                                              \
        return status;                                                                          \
    }

LAUNCH_KERNEL(cuLaunchKernel, SHARED)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, OWN)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, SHARED)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, OWN)
LAUNCH_EX(cuLaunchKernelEx, SHARED)
LAUNCH_EX(cuLaunchKernelEx_ptsz, OWN)
LAUNCH_GRAPH(cuGraphLaunch, SHARED)
LAUNCH_GRAPH(cuGraphLaunch_ptsz, OWN)

HOOK(cuLaunchCooperativeKernelMultiDevice)(void *list, unsigned n, unsigned flags)
{
    GATED(NULL, list, REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags));
}

HOOK(cuLaunch)(void *f)
{
    GATED(NULL, f, REAL(cuLaunch)(f));
}

HOOK(cuLaunchGrid)(void *f, int width, int height)
{
    GATED(NULL, f, REAL(cuLaunchGrid)(f, width, height));
}

HOOK(cuLaunchGridAsync)(void *f, int width, int height, void *stream)
{
    GATED(stream, f, REAL(cuLaunchGridAsync)(f, width, height, stream));
}

/* -- captures -------------------------------------------------------------------------------- */

/* Counted before the driver begins it: the helper thread must not touch a capturing context. */
#define CAPTURED(call)            \
    do {                          \
        drain_begin_capture();    \
        int status = (call);      \
        if (status)               \
            drain_end_capture();  \
        return status;            \
    } while (0)

/* The first version had no mode. */
HOOK(cuStreamBeginCapture)(void *stream)
{
    CAPTURED(REAL(cuStreamBeginCapture)(stream));
}

HOOK(cuStreamBeginCapture_ptsz)(void *stream)
{
    CAPTURED(REAL(cuStreamBeginCapture_ptsz)(stream));
}

HOOK(cuStreamBeginCapture_v2)(void *stream, int mode)
{
    CAPTURED(REAL(cuStreamBeginCapture_v2)(stream, mode));
}

HOOK(cuStreamBeginCapture_v2_ptsz)(void *stream, int mode)
{
    CAPTURED(REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

HOOK(cuStreamBeginCaptureToGraph)(void *stream, void *graph, void *before, void *edges, size_t n,
                                  int mode)
{
    CAPTURED(REAL(cuStreamBeginCaptureToGraph)(stream, graph, before, edges, n, mode));
}

HOOK(cuStreamBeginCaptureToGraph_ptsz)(void *stream, void *graph, void *before, void *edges,
                                       size_t n, int mode)
{
    CAPTURED(REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, before, edges, n, mode));
}

/* Recaptures into a graph, call by call, and captures for a graphics queue. */
HOOK(cuStreamBeginRecaptureToGraph)(void *stream, int mode, void *graph, void *call, void *data)
{
    CAPTURED(REAL(cuStreamBeginRecaptureToGraph)(stream, mode, graph, call, data));
}

HOOK(cuStreamBeginRecaptureToGraph_ptsz)(void *stream, int mode, void *graph, void *call,
                                         void *data)
{
    CAPTURED(REAL(cuStreamBeginRecaptureToGraph_ptsz)(stream, mode, graph, call, data));
}

HOOK(cuStreamBeginCaptureToCig)(void *stream, void *how)
{
    CAPTURED(REAL(cuStreamBeginCaptureToCig)(stream, how));
}

HOOK(cuStreamBeginCaptureToCig_ptsz)(void *stream, void *how)
{
    CAPTURED(REAL(cuStreamBeginCaptureToCig_ptsz)(stream, how));
}

/* An invalidated capture ends here too, with an error. */
HOOK(cuStreamEndCaptureToCig)(void *stream)
{
    int status = REAL(cuStreamEndCaptureToCig)(stream);
    drain_end_capture();
    return status;
}

HOOK(cuStreamEndCaptureToCig_ptsz)(void *stream)
{
    int status = REAL(cuStreamEndCaptureToCig_ptsz)(stream);
    drain_end_capture();
    return status;
}

HOOK(cuStreamEndCapture)(void *stream, void **graph)
{
    int status = REAL(cuStreamEndCapture)(stream, graph);
    drain_end_capture();
    return status;
}

HOOK(cuStreamEndCapture_ptsz)(void *stream, void **graph)
{
    int status = REAL(cuStreamEndCapture_ptsz)(stream, graph);
    drain_end_capture();
    return status;
}
