/* What the parts of the fake libcuda share: error codes and the few layouts that are passed in. */
#ifndef FAKECUDA_CUDA_H
#define FAKECUDA_CUDA_H

#include "device.h"

#include <stdbool.h>
#include <stddef.h>

enum { INVALID = 1, OUT_OF_MEMORY = 2, NOT_INITIALISED = 3, NO_DEVICE = 100, NO_CONTEXT = 201, NOT_FOUND = 500 };
enum { INVALID_HANDLE = 400, NOT_READY = 600, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900 };

struct array_2d {
    size_t width, height;
    int format;
    unsigned n_channels;
};

struct array_3d {
    size_t width, height, depth;
    int format;
    unsigned n_channels, flags;
};

/* The card of the calling thread's context. */
extern __thread int fake_device, fake_is_second;

/* The card of a context. */
int fake_device_of(const void *context);
int fake_is_second_of(const void *context);

/* How often contexts have gone, and with them what was made in them. */
extern _Atomic unsigned fake_n_resets;

/* The memory nodes of a graph that is launched. */
void fake_launch_nodes(void);

/* The driver has synchronised. */
void fake_release_pools(void);

/* Something takes the engine for n times so long, in a stream's order. */
void fake_run_on(void *stream, uint64_t n, uint64_t each_ns);

/* Every name of the driver, in a generated file. */
struct fake_symbol {
    const char *name;
    void (*function)(void);
};

extern const struct fake_symbol fake_symbols[];
extern const int fake_n_symbols;

#endif
