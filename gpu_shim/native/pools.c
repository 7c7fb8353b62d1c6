/* Memory that outlives its frees: pools, physical memory (VMM), and memory nodes of graphs.
 *
 * A pool keeps freed memory, so it is charged its reserved size, not the size in use. Physical
 * memory lives until its last handle and its last mapping are gone, in any order.
 */
#include "account.h"
#include "client.h"
#include "driver.h"
#include "gate.h"
#include "names.h"
#include "table.h"

#include <pthread.h>
#include <string.h>

enum { POOL_RESERVED = 5, POOL_USED = 7, GRAPH_RESERVED = 2 };
enum { ON_DEVICE = 1, MAX_DEVICES = 64 };

/* -- pools ----------------------------------------------------------------------------------- */

static uint64_t attribute(uint64_t pool, int which)
{
    uint64_t value = 0;
    return pool && !REAL(cuMemPoolGetAttribute)(pool, which, &value) ? value : 0;
}

/* The driver's figure is read and charged under this lock, or an old figure may overwrite a new
 * one. */
static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;

static void settle(uint64_t pool, int card)
{
    uint64_t reserved;
    pthread_mutex_lock(&settling);
    if (pool && !REAL(cuMemPoolGetAttribute)(pool, POOL_RESERVED, &reserved))
        account_settle(ACCOUNT_POOL, pool, card, table_rounded(reserved));
    pthread_mutex_unlock(&settling);
}

/* A pool shrinks at a synchronisation, which we do not see, so pools are settled before a
 * request is refused and before sizes are reported. Keys up to MAX_DEVICES are graphs' memory. */
void pools_settle(void)
{
    uint64_t from = MAX_DEVICES + 1, key;
    int card;
    while (account_lowest(ACCOUNT_POOL, from, &key)) {
        if ((card = account_card(ACCOUNT_POOL, key)) >= 0)
            settle(key, card);
        from = key + 1;
    }
}

static uint64_t current_pool(void)
{
    int device = 0;
    uint64_t pool = 0;
    if (REAL(cuCtxGetDevice)(&device) || REAL(cuDeviceGetMemPool)(&pool, device))
        return 0;
    return pool;
}

/* A pool serves requests from its free memory; the excess is reserved first, and becomes part of
 * the pool's own charge after the driver's call. */
#define TAKE_FROM(pool, call)                                                     \
    do {                                                                          \
        int card = gate_current_card();                                           \
        uint64_t slack = attribute(pool, POOL_RESERVED) - attribute(pool, POOL_USED); \
        uint64_t more = bytes > slack ? table_rounded(bytes - slack) : 0;         \
        if (!account_take(card, more))                                            \
            return CUDA_OUT_OF_MEMORY;                                            \
        int status = (call);                                                      \
        account_give(card, more);                                                 \
        settle(pool, card);                                                       \
        if (!status)                                                              \
            account_keep(ACCOUNT_BLOCK, *at, card, 0, pool);                      \
        return status;                                                            \
    } while (0)

HOOK(cuMemAllocAsync)(uint64_t *at, size_t bytes, void *stream)
{
    uint64_t pool = client_ready() ? current_pool() : 0;
    TAKE_FROM(pool, REAL(cuMemAllocAsync)(at, bytes, stream));
}

HOOK(cuMemAllocAsync_ptsz)(uint64_t *at, size_t bytes, void *stream)
{
    uint64_t pool = client_ready() ? current_pool() : 0;
    TAKE_FROM(pool, REAL(cuMemAllocAsync_ptsz)(at, bytes, stream));
}

HOOK(cuMemAllocFromPoolAsync)(uint64_t *at, size_t bytes, uint64_t pool, void *stream)
{
    TAKE_FROM(pool, REAL(cuMemAllocFromPoolAsync)(at, bytes, pool, stream));
}

HOOK(cuMemAllocFromPoolAsync_ptsz)(uint64_t *at, size_t bytes, uint64_t pool, void *stream)
{
    TAKE_FROM(pool, REAL(cuMemAllocFromPoolAsync_ptsz)(at, bytes, pool, stream));
}

static void drop(uint64_t at)
{
    int card;
    uint64_t bytes, pool;
    if (!account_drop(ACCOUNT_BLOCK, at, &card, &bytes, &pool))
        return;
    if (pool)
        settle(pool, card);
    else
        account_give(card, bytes);
}

HOOK(cuMemFreeAsync)(uint64_t at, void *stream)
{
    int status = REAL(cuMemFreeAsync)(at, stream);
    if (!status)
        drop(at);
    return status;
}

HOOK(cuMemFreeAsync_ptsz)(uint64_t at, void *stream)
{
    int status = REAL(cuMemFreeAsync_ptsz)(at, stream);
    if (!status)
        drop(at);
    return status;
}

HOOK(cuMemPoolTrimTo)(uint64_t pool, size_t keep)
{
    int status = REAL(cuMemPoolTrimTo)(pool, keep);
    settle(pool, gate_current_card());
    return status;
}

HOOK(cuMemPoolDestroy)(uint64_t pool)
{
    int card;
    uint64_t bytes, link;
    int status = REAL(cuMemPoolDestroy)(pool);
    if (!status && account_drop(ACCOUNT_POOL, pool, &card, &bytes, &link))
        account_give(card, bytes);
    return status;
}

/* -- virtual memory management --------------------------------------------------------------- */

/* CUmemAllocationProp as far as we read it. */
struct properties {
    int type, handle_types;
    struct {
        int type, id;
    } location;
};

_Static_assert(offsetof(struct properties, location) == 8, "CUmemAllocationProp");

/* The link of a handle counts its references: handles and mappings. */
HOOK(cuMemCreate)(uint64_t *handle, size_t bytes, const struct properties *want,
                  unsigned long long flags)
{
    bool is_ours = client_ready() && want && want->location.type == ON_DEVICE;
    int card = is_ours ? gate_card_of(want->location.id) : -1;
    uint64_t charge = table_rounded(bytes);
    if (!account_take(card, charge))
        return CUDA_OUT_OF_MEMORY;
    int status = REAL(cuMemCreate)(handle, bytes, want, flags);
    if (status)
        account_give(card, charge);
    else
        account_keep(ACCOUNT_PHYSICAL, *handle, card, charge, 1);
    return status;
}

static void let_go(uint64_t handle)
{
    int card;
    uint64_t bytes, link;
    if (!account_count(ACCOUNT_PHYSICAL, handle, -1) &&
        account_drop(ACCOUNT_PHYSICAL, handle, &card, &bytes, &link))
        account_give(card, bytes);
}

HOOK(cuMemRelease)(uint64_t handle)
{
    int status = REAL(cuMemRelease)(handle);
    if (!status)
        let_go(handle);
    return status;
}

HOOK(cuMemRetainAllocationHandle)(uint64_t *handle, void *at)
{
    int status = REAL(cuMemRetainAllocationHandle)(handle, at);
    if (!status)
        account_count(ACCOUNT_PHYSICAL, *handle, 1);
    return status;
}

HOOK(cuMemMap)(uint64_t at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    int status = REAL(cuMemMap)(at, bytes, offset, handle, flags);
    if (!status) {
        account_count(ACCOUNT_PHYSICAL, handle, 1);
        account_keep(ACCOUNT_MAPPING, at, -1, bytes, handle);
    }
    return status;
}

/* The range consists of whole mappings; the driver refuses holes and parts of mappings. */
HOOK(cuMemUnmap)(uint64_t at, size_t bytes)
{
    int card;
    uint64_t key = at, mapped, handle;
    int status = REAL(cuMemUnmap)(at, bytes);
    while (!status && key - at < bytes &&
           account_drop(ACCOUNT_MAPPING, key, &card, &mapped, &handle)) {
        let_go(handle);
        key += mapped;
    }
    return status;
}

/* -- graphs ---------------------------------------------------------------------------------- */

/* CUDA_MEM_ALLOC_NODE_PARAMS: pool properties of 88 bytes, two words, the size. */
struct node_parameters {
    unsigned char properties[88];
    const void *access;
    size_t n_access, bytes;
    uint64_t at;
};

/* A node takes its memory at the launch; one that cannot fit is refused here, by its size. */
static bool fits(const struct node_parameters *want)
{
    uint64_t cap, used;
    if (want)
        pools_settle();
    return !want || !account_view(gate_current_card(), &cap, &used) ||
           (used <= cap && table_rounded(want->bytes) <= cap - used);
}

HOOK(cuGraphAddMemAllocNode)(void **node, void *graph, void *const *before, size_t n_before,
                             struct node_parameters *want)
{
    if (!fits(want))
        return CUDA_OUT_OF_MEMORY;
    return REAL(cuGraphAddMemAllocNode)(node, graph, before, n_before, want);
}

/* CUgraphNodeParams: a kind, three words, and the parameters of that kind. */
struct any_node {
    int kind, reserved[3];
    struct node_parameters allocation;
};

enum { ALLOCATION = 10 };

static bool any_fits(const struct any_node *want)
{
    return !want || want->kind != ALLOCATION || fits(&want->allocation);
}

HOOK(cuGraphAddNode)(void **node, void *graph, void *const *before, size_t n_before,
                     struct any_node *want)
{
    return any_fits(want) ? REAL(cuGraphAddNode)(node, graph, before, n_before, want)
                          : CUDA_OUT_OF_MEMORY;
}

#define HOOK_NODE(name)                                                                          \
    HOOK(name)(void **node, void *graph, void *const *before, const void *edges, size_t n_before, \
               struct any_node *want)                                                            \
    {                                                                                            \
        return any_fits(want) ? REAL(name)(node, graph, before, edges, n_before, want)           \
                              : CUDA_OUT_OF_MEMORY;                                              \
    }

HOOK_NODE(cuGraphAddNode_v2)
HOOK_NODE(cuGraphAddNode_v3)

/* After a launch: the device's memory for graphs is charged as one pool, with the device as its
 * key. */
void pools_settle_graphs(int card)
{
    int device = 0;
    uint64_t reserved = 0;
    if (card < 0 || REAL(cuCtxGetDevice)(&device) ||
        REAL(cuDeviceGetGraphMemAttribute)(device, GRAPH_RESERVED, &reserved))
        return;
    account_settle(ACCOUNT_POOL, (uint64_t)device + 1, card, table_rounded(reserved));
}
