/* Copies and fills: they run on the card's engine, a microsecond for each KiB. Nothing is moved. */
#include "cuda.h"

#include <stdint.h>
#include <stdlib.h>

static int fill(void *stream, uint64_t bytes)
{
    fake_run_on(stream, bytes >> 10, 1000);
    return 0;
}

/* Addresses of the card are those that cuMemAlloc gives out. */
int cuPointerGetAttribute(void *data, int attribute, uint64_t at)
{
    if (attribute != 2)
        return NOT_SUPPORTED;
    *(unsigned *)data = at >= 0x7f0000000000 ? 2 : 1;
    return 0;
}

/* The host's memory, which both sides see. */
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    *at = calloc(1, bytes);
    return *at ? 0 : OUT_OF_MEMORY;
}

int cuMemHostGetDevicePointer_v2(uint64_t *at, void *host, unsigned flags)
{
    (void)flags;
    *at = (uintptr_t)host;
    return 0;
}

#define COPY(name)                                                                          \
    int name(uint64_t to, uint64_t from, size_t bytes)                                      \
    {                                                                                       \
        (void)to, (void)from;                                                               \
        return fill(NULL, bytes);                                                           \
    }
#define COPY_QUEUED(name)                                                                   \
    int name(uint64_t to, uint64_t from, size_t bytes, void *stream)                        \
    {                                                                                       \
        (void)to, (void)from;                                                               \
        return fill(stream, bytes);                                                         \
    }
#define FILL(name, unit)                                                                    \
    int name(uint64_t to, unsigned value, size_t n)                                         \
    {                                                                                       \
        (void)to, (void)value;                                                              \
        return fill(NULL, n * unit);                                                        \
    }
#define FILL_QUEUED(name, unit)                                                             \
    int name(uint64_t to, unsigned value, size_t n, void *stream)                           \
    {                                                                                       \
        (void)to, (void)value;                                                              \
        return fill(stream, n * unit);                                                      \
    }
#define ROWS(name, unit)                                                                    \
    int name(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height)        \
    {                                                                                       \
        (void)to, (void)pitch, (void)value;                                                 \
        return fill(NULL, width * height * unit);                                           \
    }
#define ROWS_QUEUED(name, unit)                                                             \
    int name(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height, void *stream) \
    {                                                                                       \
        (void)to, (void)pitch, (void)value;                                                 \
        return fill(stream, width * height * unit);                                         \
    }

COPY(cuMemcpyDtoD_v2)
COPY(cuMemcpyDtoD_v2_ptds)
COPY(cuMemcpy)
COPY(cuMemcpy_ptds)
COPY_QUEUED(cuMemcpyDtoDAsync_v2)
COPY_QUEUED(cuMemcpyDtoDAsync_v2_ptsz)
COPY_QUEUED(cuMemcpyAsync)
COPY_QUEUED(cuMemcpyAsync_ptsz)

#define BOTH(macro, name, unit, other) macro(name, unit) macro(name##other, unit)

BOTH(FILL, cuMemsetD8_v2, 1, _ptds)
BOTH(FILL, cuMemsetD16_v2, 2, _ptds)
BOTH(FILL, cuMemsetD32_v2, 4, _ptds)
BOTH(FILL_QUEUED, cuMemsetD8Async, 1, _ptsz)
BOTH(FILL_QUEUED, cuMemsetD16Async, 2, _ptsz)
BOTH(FILL_QUEUED, cuMemsetD32Async, 4, _ptsz)
BOTH(ROWS, cuMemsetD2D8_v2, 1, _ptds)
BOTH(ROWS, cuMemsetD2D16_v2, 2, _ptds)
BOTH(ROWS, cuMemsetD2D32_v2, 4, _ptds)
BOTH(ROWS_QUEUED, cuMemsetD2D8Async, 1, _ptsz)
BOTH(ROWS_QUEUED, cuMemsetD2D16Async, 2, _ptsz)
BOTH(ROWS_QUEUED, cuMemsetD2D32Async, 4, _ptsz)
