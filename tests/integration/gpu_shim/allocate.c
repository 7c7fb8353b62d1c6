/* Threads that take and free memory in every way at random: `allocate THREADS TURNS SEED`. Prints
 * the MiB that are charged after all of it was freed, and how many calls failed that must not.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuDevicePrimaryCtxRetain(void **, int);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemAllocManaged(uint64_t *, size_t, unsigned);
int cuMemAllocPitch_v2(uint64_t *, size_t *, size_t, size_t, unsigned);
int cuArrayCreate_v2(uint64_t *, const void *);
int cuArrayDestroy(uint64_t);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemAllocFromPoolAsync(uint64_t *, size_t, void *, void *);
int cuMemFreeAsync(uint64_t, void *);
int cuMemPoolCreate(void **, const void *);
int cuMemPoolDestroy(void *);
int cuMemPoolTrimTo(void *, size_t);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
int cuMemCreate(uint64_t *, size_t, const void *, unsigned long long);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long);
int cuMemUnmap(uint64_t, size_t);
int cuMemRelease(uint64_t);
int cuMemRetainAllocationHandle(uint64_t *, void *);

enum { MIB = 1 << 20, N_HELD = 64, N_POOLS = 4, MAX_THREADS = 16 };
enum way { NOTHING, BLOCK, ARRAY, QUEUED, HANDLE, MAPPING };

struct held {
    enum way way;
    uint64_t at;
    size_t bytes;
};

static void *context, *pools[N_POOLS];
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static long n_turns, seed;
static _Atomic int n_failed;
static __thread uint64_t random_state;

static uint64_t roll(uint64_t n)
{
    uint64_t x = random_state;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    random_state = x;
    return (x >> 11) % n;
}

static void must(int status) { n_failed += status != 0; }

static void drop(struct held *held)
{
    if (held->way == BLOCK)
        must(cuMemFree_v2(held->at));
    else if (held->way == ARRAY)
        must(cuArrayDestroy(held->at));
    else if (held->way == QUEUED)
        must(roll(2) ? cuMemFreeAsync(held->at, NULL) : cuMemFree_v2(held->at));
    else if (held->way == HANDLE)
        must(cuMemRelease(held->at));
    else if (held->way == MAPPING)
        must(cuMemUnmap(held->at, held->bytes));
    held->way = NOTHING;
}

/* From a pool of the card or of the host, which is sometimes trimmed or destroyed afterwards. */
static int take_from_pool(uint64_t *at, size_t bytes)
{
    pthread_mutex_lock(&pools_lock);
    int ix = (int)roll(N_POOLS), where[22] = {1, 0, ix ? 1 : 2, 0};
    if (!pools[ix])
        must(cuMemPoolCreate(&pools[ix], where));
    int status = cuMemAllocFromPoolAsync(at, bytes, pools[ix], NULL);
    if (!roll(6)) {
        must(cuMemPoolDestroy(pools[ix]));
        pools[ix] = NULL;
    } else if (!roll(4)) {
        must(cuMemPoolTrimTo(pools[ix], 0));
    }
    pthread_mutex_unlock(&pools_lock);
    return status;
}

/* The mapping keeps the memory after its handle was released. */
static int take_mapped(uint64_t *at, size_t bytes)
{
    int where[16] = {1, 0, 1, 0};
    uint64_t handle, again;
    int status = cuMemCreate(&handle, bytes, where, 0);
    if (status)
        return status;
    must(cuMemAddressReserve(at, bytes, 0, 0, 0));
    status = cuMemMap(*at, bytes, 0, handle, 0);
    if (!status && !roll(3)) {
        must(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)*at));
        must(cuMemRelease(again));
    }
    must(cuMemRelease(handle));
    return status;
}

static int take(struct held *held)
{
    size_t bytes = held->bytes = (2 + 2 * roll(8)) * MIB, pitch;
    struct {
        size_t width, height;
        int format;
        unsigned n_channels;
    } array = {bytes / 4, 0, 0x20, 1};
    int where[16] = {1, 0, 1, 0}, kind = (int)roll(8);
    static const enum way ways[] = {BLOCK, BLOCK, BLOCK, ARRAY, QUEUED, QUEUED, HANDLE, MAPPING};
    held->way = ways[kind];
    switch (kind) {
    case 0: return cuMemAlloc_v2(&held->at, bytes);
    case 1: return cuMemAllocManaged(&held->at, bytes, 1);
    case 2: return cuMemAllocPitch_v2(&held->at, &pitch, 512, bytes / 512, 4);
    case 3: return cuArrayCreate_v2(&held->at, &array);
    case 4: return cuMemAllocAsync(&held->at, bytes, NULL);
    case 5: return take_from_pool(&held->at, bytes);
    case 6: return cuMemCreate(&held->at, bytes, where, 0);
    default: return take_mapped(&held->at, bytes);
    }
}

static void *play(void *which)
{
    struct held all[N_HELD] = {{NOTHING, 0, 0}};
    random_state = (uint64_t)(seed * MAX_THREADS + (long)which + 1) * 2654435761u;
    must(cuCtxSetCurrent(context));
    for (long turn = 0; turn < n_turns; turn++) {
        struct held *held = &all[roll(N_HELD)];
        if (held->way)
            drop(held);
        else if (take(held))
            held->way = NOTHING;
    }
    for (int at = 0; at < N_HELD; at++)
        drop(&all[at]);
    return NULL;
}

int main(int n_arguments, char **arguments)
{
    pthread_t threads[MAX_THREADS];
    size_t left, total;
    if (n_arguments != 4)
        return 2;
    long n_threads = atol(arguments[1]);
    n_turns = atol(arguments[2]), seed = atol(arguments[3]);
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    for (long at = 0; at < n_threads; at++)
        pthread_create(&threads[at], NULL, play, (void *)at);
    for (long at = 0; at < n_threads; at++)
        pthread_join(threads[at], NULL);
    must(cuCtxSetCurrent(context));
    for (int ix = 0; ix < N_POOLS; ix++)
        must(pools[ix] ? cuMemPoolDestroy(pools[ix]) : 0);
    must(cuCtxSynchronize());
    must(cuMemGetInfo_v2(&left, &total));
    printf("charged %zu of %zu, failed %d\n", (total - left) / MIB, total / MIB, n_failed);
    return 0;
}
