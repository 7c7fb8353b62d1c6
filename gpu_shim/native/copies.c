/* Gates copies within the card, and fills, because they run where kernels run. Copies from and to
 * the host use their own engines and are not gated.
 *
 * A copy below LARGE ends before a gate would matter. Fill values are passed on in a register,
 * whatever their width.
 */
#include "driver.h"
#include "gate.h"
#include "names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LARGE ((uint64_t)1 << 20)

enum { MEMORY_TYPE = 2, ON_DEVICE = 2 };

/* Saturating: a product that does not fit is large. */
static bool is_large(uint64_t width, uint64_t height, uint64_t unit)
{
    uint64_t area, bytes;
    return __builtin_mul_overflow(width, height, &area) ||
           __builtin_mul_overflow(area, unit, &bytes) || bytes >= LARGE;
}

/* Whether both addresses are on devices, for calls that do not state it. */
static bool is_within(uint64_t to, uint64_t from)
{
    unsigned type = 0;
    if (REAL(cuPointerGetAttribute)(&type, MEMORY_TYPE, to) || type != ON_DEVICE)
        return false;
    return !REAL(cuPointerGetAttribute)(&type, MEMORY_TYPE, from) && type == ON_DEVICE;
}

/* -- copies ---------------------------------------------------------------------------------- */

#define COPY_WAITING(name, of, is_gated)                                       \
    HOOK(name)(uint64_t to, uint64_t from, size_t bytes)                       \
    {                                                                          \
        if (bytes < LARGE || !(is_gated))                                      \
            return REAL(name)(to, from, bytes);                                \
        void *stream = NULL;                                                   \
        GATED(of(stream), NULL, REAL(name)(to, from, bytes));                        \
    }

#define COPY_QUEUED(name, of, is_gated)                                        \
    HOOK(name)(uint64_t to, uint64_t from, size_t bytes, void *stream)         \
    {                                                                          \
        if (bytes < LARGE || !(is_gated))                                      \
            return REAL(name)(to, from, bytes, stream);                        \
        GATED(of(stream), NULL, REAL(name)(to, from, bytes, stream));                \
    }

COPY_WAITING(cuMemcpyDtoD_v2, SHARED, true)
COPY_WAITING(cuMemcpyDtoD_v2_ptds, OWN, true)
COPY_QUEUED(cuMemcpyDtoDAsync_v2, SHARED, true)
COPY_QUEUED(cuMemcpyDtoDAsync_v2_ptsz, OWN, true)
COPY_WAITING(cuMemcpy, SHARED, is_within(to, from))
COPY_WAITING(cuMemcpy_ptds, OWN, is_within(to, from))
COPY_QUEUED(cuMemcpyAsync, SHARED, is_within(to, from))
COPY_QUEUED(cuMemcpyAsync_ptsz, OWN, is_within(to, from))

/* -- filling --------------------------------------------------------------------------------- */

#define FILL_WAITING(name, of, unit)                                           \
    HOOK(name)(uint64_t to, unsigned value, size_t n)                          \
    {                                                                          \
        if (!is_large(n, 1, unit))                                             \
            return REAL(name)(to, value, n);                                   \
        void *stream = NULL;                                                   \
        GATED(of(stream), NULL, REAL(name)(to, value, n));                           \
    }

#define FILL_QUEUED(name, of, unit)                                            \
    HOOK(name)(uint64_t to, unsigned value, size_t n, void *stream)            \
    {                                                                          \
        if (!is_large(n, 1, unit))                                             \
            return REAL(name)(to, value, n, stream);                           \
        GATED(of(stream), NULL, REAL(name)(to, value, n, stream));                   \
    }

#define FILL_ROWS(name, of, unit)                                              \
    HOOK(name)(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height) \
    {                                                                          \
        if (!is_large(width, height, unit))                                    \
            return REAL(name)(to, pitch, value, width, height);                \
        void *stream = NULL;                                                   \
        GATED(of(stream), NULL, REAL(name)(to, pitch, value, width, height));        \
    }

#define FILL_ROWSQUEUED(name, of, unit)                                        \
    HOOK(name)(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height, \
               void *stream)                                                   \
    {                                                                          \
        if (!is_large(width, height, unit))                                    \
            return REAL(name)(to, pitch, value, width, height, stream);        \
        GATED(of(stream), NULL, REAL(name)(to, pitch, value, width, height, stream)); \
    }

FILL_WAITING(cuMemsetD8_v2, SHARED, 1)
FILL_WAITING(cuMemsetD8_v2_ptds, OWN, 1)
FILL_WAITING(cuMemsetD16_v2, SHARED, 2)
FILL_WAITING(cuMemsetD16_v2_ptds, OWN, 2)
FILL_WAITING(cuMemsetD32_v2, SHARED, 4)
FILL_WAITING(cuMemsetD32_v2_ptds, OWN, 4)
FILL_QUEUED(cuMemsetD8Async, SHARED, 1)
FILL_QUEUED(cuMemsetD8Async_ptsz, OWN, 1)
FILL_QUEUED(cuMemsetD16Async, SHARED, 2)
FILL_QUEUED(cuMemsetD16Async_ptsz, OWN, 2)
FILL_QUEUED(cuMemsetD32Async, SHARED, 4)
FILL_QUEUED(cuMemsetD32Async_ptsz, OWN, 4)
FILL_ROWS(cuMemsetD2D8_v2, SHARED, 1)
FILL_ROWS(cuMemsetD2D8_v2_ptds, OWN, 1)
FILL_ROWS(cuMemsetD2D16_v2, SHARED, 2)
FILL_ROWS(cuMemsetD2D16_v2_ptds, OWN, 2)
FILL_ROWS(cuMemsetD2D32_v2, SHARED, 4)
FILL_ROWS(cuMemsetD2D32_v2_ptds, OWN, 4)
FILL_ROWSQUEUED(cuMemsetD2D8Async, SHARED, 1)
FILL_ROWSQUEUED(cuMemsetD2D8Async_ptsz, OWN, 1)
FILL_ROWSQUEUED(cuMemsetD2D16Async, SHARED, 2)
FILL_ROWSQUEUED(cuMemsetD2D16Async_ptsz, OWN, 2)
FILL_ROWSQUEUED(cuMemsetD2D32Async, SHARED, 4)
FILL_ROWSQUEUED(cuMemsetD2D32Async_ptsz, OWN, 4)
