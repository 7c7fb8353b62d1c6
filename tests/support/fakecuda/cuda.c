/* A libcuda.so.1 for tests: contexts, memory of every kind, and how symbols are looked up.
 *
 * Only what the shim's tests call does anything; every other name of the driver is in stubs.c.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MULTIPROCESSOR_COUNT = 16 };

struct pool;
static int has_context;
/* For each card the primary one, and one that is made; what they take is taken once. */
static char contexts[2 * FAKE_MAX_CARDS];
__thread int fake_device;
__thread int fake_is_second;
static int give(uint64_t address);
static void shrink(struct pool *pool, uint64_t kept);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Allocations of this process. The lowest free address is given out, as by the driver: one that was
 * freed comes back at once. Nothing lies behind it. */
static struct block {
    uint64_t address, bytes;
    struct pool *pool;
} blocks[65536];
#define FIRST_ADDRESS ((uint64_t)1 << 48)
#define ADDRESS_ROOM ((uint64_t)1 << 36)
/* Reserved ranges are counted up. */
static uint64_t next_address = 0x7f0000000000;

static struct pool {
    uint64_t used, reserved, threshold;
    struct pool *next;
    bool is_host, is_destroyed;
} default_pool;

static bool is_initialised;

/* A call that frees returns late, where $FAKECUDA_LATE_US says so: other threads run meanwhile. */
static void return_late(void)
{
    const char *said = getenv("FAKECUDA_LATE_US");
    if (said)
        usleep((unsigned)atoi(said));
}

/* What is free in a pool beyond its threshold goes back at the next synchronisation. */
void fake_release_pools(void)
{
    pthread_mutex_lock(&lock);
    for (struct pool *pool = &default_pool; pool; pool = pool->next) {
        uint64_t kept = pool->used > pool->threshold ? pool->used : pool->threshold;
        shrink(pool, kept);
    }
    pthread_mutex_unlock(&lock);
}

int cuInit(unsigned flags)
{
    (void)flags;
    is_initialised = fake_card() != NULL;
    return is_initialised ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = fake_n_cards(); return 0; }

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < fake_n_cards() ? 0 : INVALID;
}

int cuCtxGetDevice(int *device) { *device = fake_device; return has_context ? 0 : NO_CONTEXT; }

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    if (!is_initialised)
        return NOT_INITIALISED;
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(i * 0x11);
    if (device)
        uuid[15] = (unsigned char)device;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == MULTIPROCESSOR_COUNT ? 132 : 0;
    return 0;
}

int cuDeviceGetUuid(unsigned char uuid[16], int device) { return cuDeviceGetUuid_v2(uuid, device); }

/* What a context takes: the card's figure, or this process's own. */
static uint64_t context_bytes(void)
{
    const char *said = getenv("FAKECUDA_CONTEXT_MIB");
    return said ? strtoull(said, NULL, 10) << 20 : fake_card()->context_bytes;
}

static int enter(void)
{
    if (!has_context && !fake_take(context_bytes()))
        return OUT_OF_MEMORY;
    has_context = 1;
    return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    (void)flags;
    *context = &contexts[FAKE_MAX_CARDS + device];
    return enter();
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &contexts[device];
    return enter();
}

_Atomic unsigned fake_n_resets;

/* Everything in it goes with it. */
int cuDevicePrimaryCtxReset_v2(int device)
{
    (void)device;
    fake_n_resets++;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i].address && !blocks[i].pool)
            give(blocks[i].address);
    }
    fake_give(has_context ? context_bytes() : 0);
    has_context = 0;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    (void)device;
    *flags = 0;
    *is_active = has_context;
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    *context = has_context ? &contexts[fake_is_second * FAKE_MAX_CARDS + fake_device] : NULL;
    return 0;
}

/* The first version counts the uses of a context. */
static int n_uses;

int cuCtxCreate(void **context, unsigned flags, int device)
{
    n_uses = 1;
    return cuCtxCreate_v2(context, flags, device);
}

int cuCtxAttach(void **context, unsigned flags)
{
    (void)flags;
    n_uses++;
    return cuCtxGetCurrent(context);
}

int cuCtxDetach(void *context)
{
    (void)context;
    return n_uses-- > 0 ? 0 : INVALID;
}

int cuCtxDestroy(void *context) { return n_uses == 1 ? cuCtxDetach(context) : INVALID; }

int fake_device_of(const void *context)
{
    return (int)((const char *)context - contexts) % FAKE_MAX_CARDS;
}

int fake_is_second_of(const void *context)
{
    return (const char *)context - contexts >= FAKE_MAX_CARDS;
}

int cuCtxSetCurrent(void *context)
{
    fake_device = fake_device_of(context);
    fake_is_second = fake_is_second_of(context);
    return 0;
}

int cuCtxPushCurrent_v2(void *context) { return cuCtxSetCurrent(context); }
int cuCtxPopCurrent_v2(void **context) { return cuCtxGetCurrent(context); }

/* -- memory ---------------------------------------------------------------------------------- */

static int put(uint64_t *address, uint64_t bytes, struct pool *pool)
{
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i].address)
            continue;
        *address = FIRST_ADDRESS + i * ADDRESS_ROOM;
        blocks[i] = (struct block){*address, bytes, pool};
        return 0;
    }
    return OUT_OF_MEMORY;
}

static int take(uint64_t *address, uint64_t bytes)
{
    if (!bytes)
        return INVALID;
    if (!fake_take(bytes))
        return OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    int status = put(address, bytes, NULL);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Give back what a pool has beyond this. */
static void shrink(struct pool *pool, uint64_t kept)
{
    if (pool->reserved > kept && !pool->is_host)
        fake_give(pool->reserved - kept);
    pool->reserved = pool->reserved > kept ? kept : pool->reserved;
}

static int give(uint64_t address)
{
    int status = INVALID;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; address && i < sizeof blocks / sizeof *blocks; i++) {
        struct block *block = &blocks[i];
        if (block->address != address)
            continue;
        if (block->pool) {
            block->pool->used -= block->bytes;
            if (block->pool->is_destroyed)
                shrink(block->pool, block->pool->used);
        } else {
            fake_give(block->bytes);
        }
        *block = (struct block){0};
        status = 0;
        break;
    }
    pthread_mutex_unlock(&lock);
    return_late();
    return status;
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) { return take(at, bytes); }
int cuMemFree_v2(uint64_t at) { return at ? give(at) : 0; }
int cuMemFreeAsync(uint64_t at, void *stream) { (void)stream; return give(at); }
int cuMemFreeAsync_ptsz(uint64_t at, void *stream) { (void)stream; return give(at); }

int cuMemAllocManaged(uint64_t *at, size_t bytes, unsigned flags)
{
    (void)flags;
    return take(at, bytes);
}

int cuMemAllocPitch_v2(uint64_t *at, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)element;
    *pitch = (width + 511) & ~(size_t)511;
    return take(at, *pitch * height);
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    struct fake_card *card = fake_card();
    *total = card->total_bytes;
    *free_bytes = card->total_bytes - fake_used();
    return 0;
}

int cuDeviceTotalMem_v2(size_t *total, int device)
{
    (void)device;
    *total = fake_card()->total_bytes;
    return 0;
}

/* A module takes memory of the card that no hook sees; the image is how many bytes. */
int cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *options, void **values)
{
    (void)n, (void)options, (void)values;
    *module = NULL;
    return fake_take(*(const uint64_t *)image) ? 0 : OUT_OF_MEMORY;
}

/* -- pools ----------------------------------------------------------------------------------- */

int cuMemAllocFromPoolAsync(uint64_t *at, size_t bytes, struct pool *pool, void *stream)
{
    (void)stream;
    if (!bytes)
        return INVALID;
    pthread_mutex_lock(&lock);
    uint64_t slack = pool->reserved - pool->used;
    uint64_t more = bytes > slack ? bytes - slack : 0;
    int status = pool->is_host || fake_take(more) ? put(at, bytes, pool) : OUT_OF_MEMORY;
    if (!status) {
        pool->reserved += more;
        pool->used += bytes;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int cuMemAllocAsync(uint64_t *at, size_t bytes, void *stream)
{
    return cuMemAllocFromPoolAsync(at, bytes, &default_pool, stream);
}

int cuMemAllocAsync_ptsz(uint64_t *at, size_t bytes, void *stream)
{
    return cuMemAllocFromPoolAsync(at, bytes, &default_pool, stream);
}

/* CUmemPoolProps: two words, and the location's type and number; 1 is a device. */
int cuMemPoolCreate(struct pool **pool, const int *properties)
{
    *pool = calloc(1, sizeof **pool);
    (*pool)->is_host = properties && properties[2] > 1;
    pthread_mutex_lock(&lock);
    (*pool)->next = default_pool.next;
    default_pool.next = *pool;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuMemPoolTrimTo(struct pool *pool, size_t keep)
{
    pthread_mutex_lock(&lock);
    shrink(pool, pool->used > keep ? pool->used : keep);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Its memory stays until the last allocation from it is freed; the handle is gone. */
int cuMemPoolDestroy(struct pool *pool)
{
    pthread_mutex_lock(&lock);
    for (struct pool *each = &default_pool; each; each = each->next) {
        if (each->next == pool)
            each->next = pool->next;
    }
    pool->is_destroyed = true;
    shrink(pool, pool->used);
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuMemPoolSetAttribute(struct pool *pool, int attribute, void *value)
{
    if (attribute == 4)
        pool->threshold = *(uint64_t *)value;
    return 0;
}

int cuMemPoolGetAttribute(struct pool *pool, int attribute, void *value)
{
    if (pool->is_destroyed)
        return INVALID;
    *(uint64_t *)value = attribute == 5 ? pool->reserved : attribute == 7 ? pool->used : 0;
    return 0;
}

int cuDeviceGetMemPool(struct pool **pool, int device)
{
    (void)device;
    *pool = &default_pool;
    return 0;
}

/* -- virtual memory management --------------------------------------------------------------- */

struct physical {
    uint64_t bytes;
    int n_holds;
};

/* By address, in pages of 2 MiB; two mappings a multiple of 128 GiB apart do not fit. */
enum { N_MAPPINGS = 65536 };
static struct mapping {
    uint64_t address, bytes;
    struct physical *physical;
} mappings[N_MAPPINGS];

int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, unsigned long long flags)
{
    (void)properties, (void)flags;
    if (!is_initialised)
        return NOT_INITIALISED;
    if (!fake_take(bytes))
        return OUT_OF_MEMORY;
    struct physical *made = malloc(sizeof *made);
    *made = (struct physical){bytes, 1};
    *handle = (uint64_t)(uintptr_t)made;
    return 0;
}

/* Callers hold the lock. */
static void let_go(struct physical *physical)
{
    if (--physical->n_holds)
        return;
    fake_give(physical->bytes);
    free(physical);
}

int cuMemRelease(uint64_t handle)
{
    pthread_mutex_lock(&lock);
    let_go((struct physical *)(uintptr_t)handle);
    pthread_mutex_unlock(&lock);
    return_late();
    return 0;
}

int cuMemAddressReserve(uint64_t *at, size_t bytes, size_t align, uint64_t hint, uint64_t flags)
{
    (void)align, (void)hint, (void)flags;
    pthread_mutex_lock(&lock);
    *at = next_address;
    next_address += (bytes + 0x1fffff) & ~(uint64_t)0x1fffff;
    pthread_mutex_unlock(&lock);
    return 0;
}

static struct mapping *slot_of(uint64_t at)
{
    return &mappings[(at >> 21) % N_MAPPINGS];
}

int cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    (void)offset, (void)flags;
    struct mapping *mapping = slot_of(at);
    if (mapping->address || !bytes)
        return INVALID;
    pthread_mutex_lock(&lock);
    *mapping = (struct mapping){at, bytes, (struct physical *)(uintptr_t)handle};
    mapping->physical->n_holds++;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Whole mappings without a hole between them, or nothing is unmapped. */
int cuMemUnmap(uint64_t at, size_t bytes)
{
    uint64_t end = at + bytes;
    for (uint64_t next = at; next != end; next += slot_of(next)->bytes) {
        if (next > end || slot_of(next)->address != next)
            return INVALID;
    }
    pthread_mutex_lock(&lock);
    for (uint64_t next = at; next != end;) {
        struct mapping gone = *slot_of(next);
        *slot_of(next) = (struct mapping){0};
        let_go(gone.physical);
        next += gone.bytes;
    }
    pthread_mutex_unlock(&lock);
    return_late();
    return 0;
}

int cuMemRetainAllocationHandle(uint64_t *handle, void *at)
{
    struct mapping *mapping = slot_of((uint64_t)(uintptr_t)at);
    if (mapping->address != (uint64_t)(uintptr_t)at)
        return INVALID;
    pthread_mutex_lock(&lock);
    mapping->physical->n_holds++;
    pthread_mutex_unlock(&lock);
    *handle = (uint64_t)(uintptr_t)mapping->physical;
    return 0;
}

/* -- arrays ---------------------------------------------------------------------------------- */

int cuArrayCreate_v2(uint64_t *array, const struct array_2d *want)
{
    if (!want)
        return INVALID;
    return take(array, want->width * (want->height ? want->height : 1) * want->n_channels * 4);
}

int cuArray3DCreate_v2(uint64_t *array, const struct array_3d *want)
{
    if (!want)
        return INVALID;
    /* Sparse, or mapped later: memory of cuMemCreate is mapped into it. */
    if (want->flags & 0xc0)
        return put(array, 0, NULL);
    return take(array, want->width * (want->height ? want->height : 1) *
                           (want->depth ? want->depth : 1) * want->n_channels * 4);
}

int cuArrayDestroy(uint64_t array) { return give(array); }

/* -- memory of graphs ------------------------------------------------------------------------ */

/* What launched graphs have taken of the card. */
static uint64_t graph_bytes;

/* A graph is launched: its memory nodes take $FAKECUDA_GRAPH_MIB, until they are trimmed. */
void fake_launch_nodes(void)
{
    const char *said = getenv("FAKECUDA_GRAPH_MIB");
    uint64_t bytes = said ? strtoull(said, NULL, 10) << 20 : 0;
    if (!graph_bytes && fake_take(bytes))
        graph_bytes = bytes;
}

int cuDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value)
{
    (void)device;
    *value = attribute == 2 ? graph_bytes : 0;
    return 0;
}

int cuDeviceGraphMemTrim(int device)
{
    (void)device;
    fake_give(graph_bytes);
    graph_bytes = 0;
    return 0;
}
