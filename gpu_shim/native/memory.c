/* All calls that allocate device memory of a given size (plain, pitched, managed, arrays), and the
 * reported sizes.
 *
 * The order is always: reserve, call the driver, then keep or give back. A request above the cap
 * never reaches the driver, and fails as on a full card.
 */
#include "account.h"
#include "client.h"
#include "driver.h"
#include "gate.h"
#include "names.h"
#include "pools.h"
#include "table.h"

#include <string.h>

/* Reserve, call the driver, and keep the reservation, or give it back on an error. */
#define TAKE(size, key, call)                                           \
    do {                                                                \
        int card = gate_current_card();                                 \
        uint64_t charge = table_rounded(size);                          \
        if (!pools_take(card, charge))                                \
            return CUDA_OUT_OF_MEMORY;                                  \
        int status = (call);                                            \
        if (status)                                                     \
            account_give(card, charge);                                 \
        else                                                            \
            account_keep(ACCOUNT_BLOCK, (uint64_t)(key),                \
                         (struct account_item){.card = card, .bytes = charge}); \
        return status;                                                  \
    } while (0)

HOOK(cuInit)(unsigned flags)
{
    int status = REAL(cuInit)(flags);
    if (!status)
        client_join();
    return status;
}

HOOK(cuMemAlloc_v2)(uint64_t *at, size_t bytes)
{
    TAKE(bytes, *at, REAL(cuMemAlloc_v2)(at, bytes));
}

HOOK(cuMemAllocManaged)(uint64_t *at, size_t bytes, unsigned flags)
{
    TAKE(bytes, *at, REAL(cuMemAllocManaged)(at, bytes, flags));
}

/* The driver chooses the pitch: rows of 512 bytes are reserved, and the actual pitch is charged. */
HOOK(cuMemAllocPitch_v2)(uint64_t *at, size_t *pitch, size_t width, size_t height, unsigned element)
{
    int card = gate_current_card();
    uint64_t row = (width + 511) & ~(uint64_t)511;
    if (height && row > UINT64_MAX / 2 / height)
        return CUDA_OUT_OF_MEMORY;
    uint64_t charge = table_rounded(row * height);
    if (!pools_take(card, charge))
        return CUDA_OUT_OF_MEMORY;
    int status = REAL(cuMemAllocPitch_v2)(at, pitch, width, height, element);
    if (status) {
        account_give(card, charge);
        return status;
    }
    account_keep(ACCOUNT_BLOCK, *at, (struct account_item){.card = card, .bytes = charge});
    account_settle(ACCOUNT_BLOCK, *at, card, table_rounded(*pitch * height));
    return 0;
}

/* 32-bit addresses: nothing built since 2010 calls these, and they would bypass the cap. */
HOOK(cuMemAlloc)(unsigned *at, unsigned bytes)
{
    return client_ready() ? CUDA_NOT_SUPPORTED : REAL(cuMemAlloc)(at, bytes);
}

HOOK(cuMemAllocPitch)(unsigned *at, unsigned *pitch, unsigned width, unsigned height, unsigned size)
{
    return client_ready() ? CUDA_NOT_SUPPORTED
                          : REAL(cuMemAllocPitch)(at, pitch, width, height, size);
}

HOOK(cuMemFree_v2)(uint64_t at)
{
    FREE(at, REAL(cuMemFree_v2)(at));
}

/* -- arrays ---------------------------------------------------------------------------------- */

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

/* CUarray_format: half bytes of a texel, all its channels together, of the formats that fix it:
 * video, block-compressed in blocks of 4 x 4, and normalized ones. */
static const uint8_t half_bytes[256] = {
    [0x50] = 8, 4, 8, 3, 6, 4, 8, 6, 12, 3, 6, 4, 8, 6, 12,
    [0x91] = 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 2, 2, 6,
    [0xa1] = 6, 4, 8, 8, 4, 8, 8, 8, 8,
    [0xb0] = 3, 16, 6, 12, 6, 12,
    [0xc0] = 2, 4, 8, 4, 8, 16, 2, 4, 8, 4, 8, 16,
};

/* Otherwise 8-bit numbers are 1 and 8, 16-bit 2, 9 and half 0x10, the others have 32. */
static uint64_t half_bytes_of(int format, unsigned n_channels)
{
    bool is_byte = format == 1 || format == 8;
    bool is_short = format == 2 || format == 9 || format == 0x10;
    if (format >= 0 && format < 256 && half_bytes[format])
        return half_bytes[format];
    return (uint64_t)(is_byte ? 2 : is_short ? 4 : 8) * n_channels;
}

static uint64_t at_least_one(uint64_t n)
{
    return n ? n : 1;
}

/* Memory for these is mapped into them, and was charged when it was created. */
enum { SPARSE = 0x40, MAPPED_LATER = 0x80 };

static uint64_t volume(const struct array_3d *want)
{
    if (!want || want->flags & (SPARSE | MAPPED_LATER))
        return 0;
    return want->width * at_least_one(want->height) * at_least_one(want->depth) *
           half_bytes_of(want->format, want->n_channels) / 2;
}

HOOK(cuArrayCreate_v2)(uint64_t *array, const struct array_2d *want)
{
    struct array_3d same = {0};
    if (want)
        same = (struct array_3d){want->width, want->height, 0, want->format, want->n_channels, 0};
    TAKE(volume(&same), *array, REAL(cuArrayCreate_v2)(array, want));
}

HOOK(cuArray3DCreate_v2)(uint64_t *array, const struct array_3d *want)
{
    TAKE(volume(want), *array, REAL(cuArray3DCreate_v2)(array, want));
}

/* Every level has at most a quarter of the previous one: a third more than the first suffices. */
HOOK(cuMipmappedArrayCreate)(uint64_t *array, const struct array_3d *want, unsigned n_levels)
{
    uint64_t first = volume(want);
    TAKE(n_levels > 1 ? first + first / 3 : first, *array,
         REAL(cuMipmappedArrayCreate)(array, want, n_levels));
}

HOOK(cuArrayDestroy)(uint64_t array)
{
    FREE(array, REAL(cuArrayDestroy)(array));
}

HOOK(cuMipmappedArrayDestroy)(uint64_t array)
{
    FREE(array, REAL(cuMipmappedArrayDestroy)(array));
}

/* -- what is reported ------------------------------------------------------------------------ */

/* Programs pass NULL for values that they do not need. */
HOOK(cuMemGetInfo_v2)(size_t *free_bytes, size_t *total)
{
    size_t card_free = 0, card_total = 0;
    uint64_t cap, used;
    int status = REAL(cuMemGetInfo_v2)(&card_free, &card_total);
    if (!status)
        pools_settle();
    if (!status && account_view(gate_current_card(), &cap, &used)) {
        uint64_t left = cap > used ? table_rounded_down(cap - used) : 0;
        card_total = cap < card_total ? cap : card_total;
        card_free = left < card_free ? left : card_free;
    }
    if (!status && free_bytes)
        *free_bytes = card_free;
    if (!status && total)
        *total = card_total;
    return status;
}

HOOK(cuDeviceTotalMem_v2)(size_t *total, int device)
{
    uint64_t cap, used;
    int status = REAL(cuDeviceTotalMem_v2)(total, device);
    if (!status && total && client_ready() && account_view(gate_card_of(device), &cap, &used) &&
        cap < *total)
        *total = cap;
    return status;
}

/* The same for our NVML library in the same process: 0 if there is a cap. */
__attribute__((visibility("default"))) int ballast_view(const char *uuid, uint64_t *cap,
                                                        uint64_t *used)
{
    return client_ready() && account_view(client_card(uuid), cap, used) ? 0 : -1;
}
