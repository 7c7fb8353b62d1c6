/* Memory that outlives its frees: pools, physical memory (VMM), and memory nodes of graphs.
 *
 * A pool keeps freed memory, so it is charged its reserved size, not the size in use. Physical
 * memory lives until its last handle and its last mapping are gone, in any order.
 */
#include "pools.h"
#include "account.h"
#include "client.h"
#include "driver.h"
#include "gate.h"
#include "names.h"
#include "table.h"

#include <pthread.h>
#include <stddef.h>

enum { POOL_RESERVED = 5, POOL_USED = 7, GRAPH_RESERVED = 2 };
enum { ON_DEVICE = 1 };

/* CUmemLocation. */
struct location {
    int type, id;
};

/* CUmemAllocationProp and CUmemPoolProps as far as we read them. */
struct properties {
    int type, handle_types;
    struct location location;
};

_Static_assert(offsetof(struct properties, location) == 8, "CUmemAllocationProp");

/* The card of memory at a location: -1 for the host's, and the current one if none is stated. */
static int card_at(const struct location *location)
{
    if (!client_ready() || !location || location->type > ON_DEVICE)
        return -1;
    return location->type == ON_DEVICE ? gate_card_of(location->id) : gate_current_card();
}

/* -- pools ----------------------------------------------------------------------------------- */

static uint64_t attribute(uint64_t pool, int which)
{
    uint64_t value = 0;
    return pool && !REAL(cuMemPoolGetAttribute)(pool, which, &value) ? value : 0;
}

/* The driver's figure is read and charged under this lock, or an old figure may overwrite a new
 * one. Pools are made and destroyed under it, because no figure may be read of a destroyed one. */
static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;

/* Charge the pool with its current size. */
static void settle(uint64_t pool)
{
    uint64_t reserved;
    int card;
    pthread_mutex_lock(&settling);
    if (account_has(ACCOUNT_POOL, pool, &card) && card >= 0 &&
        !REAL(cuMemPoolGetAttribute)(pool, POOL_RESERVED, &reserved))
        account_settle(ACCOUNT_POOL, pool, card, table_rounded(reserved));
    pthread_mutex_unlock(&settling);
}

/* A device's memory for graphs is charged as one pool, with the device as its key. */
static void settle_graphs(int device, int card)
{
    uint64_t reserved = 0;
    pthread_mutex_lock(&settling);
    if (!REAL(cuDeviceGetGraphMemAttribute)(device, GRAPH_RESERVED, &reserved))
        account_settle(ACCOUNT_POOL, (uint64_t)device + 1, card, table_rounded(reserved));
    pthread_mutex_unlock(&settling);
}

/* A pool shrinks at a synchronisation, and graphs' memory when it is trimmed. We see neither, so
 * all are settled before a request is refused and before sizes are reported. */
void pools_settle(void)
{
    uint64_t from = 1, key;
    int card;
    while (account_lowest(ACCOUNT_POOL, from, &key)) {
        if (key > MAX_DEVICES)
            settle(key);
        else if (account_has(ACCOUNT_POOL, key, &card))
            settle_graphs((int)key - 1, card);
        from = key + 1;
    }
}

bool pools_take(int card, uint64_t bytes)
{
    if (account_take(card, bytes))
        return true;
    pools_settle();
    return account_take(card, bytes);
}

void pools_free(uint64_t at, uint64_t number)
{
    struct account_item gone;
    if (!account_drop(ACCOUNT_BLOCK, at, number, &gone))
        return;
    if (gone.link)
        settle(gone.link);
    else
        account_give(gone.card, gone.bytes);
}

/* -- where pools are ------------------------------------------------------------------------- */

HOOK(cuMemPoolCreate)(uint64_t *pool, const struct properties *want)
{
    pthread_mutex_lock(&settling);
    int status = REAL(cuMemPoolCreate)(pool, want);
    if (!status && client_ready())
        account_note(ACCOUNT_POOL, *pool, card_at(&want->location));
    pthread_mutex_unlock(&settling);
    return status;
}

/* The host has pools of its own. A device's pool is noted when it is used. */
#define HOOK_POOL(name)                                                                   \
    HOOK(name)(uint64_t *pool, const struct location *where, int type)                    \
    {                                                                                     \
        int status = REAL(name)(pool, where, type);                                       \
        if (!status && client_ready())                                                    \
            account_note(ACCOUNT_POOL, *pool, card_at(where));                            \
        return status;                                                                    \
    }

HOOK_POOL(cuMemGetDefaultMemPool)
HOOK_POOL(cuMemGetMemPool)

static int card_of_pool(uint64_t pool)
{
    int card;
    if (account_has(ACCOUNT_POOL, pool, &card))
        return card;
    card = gate_current_card();
    if (card >= 0 && pool)
        account_note(ACCOUNT_POOL, pool, card);
    return card;
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
        int card = card_of_pool(pool);                                            \
        uint64_t slack = attribute(pool, POOL_RESERVED) - attribute(pool, POOL_USED); \
        uint64_t more = bytes > slack ? table_rounded(bytes - slack) : 0;         \
        if (!pools_take(card, more))                                              \
            return CUDA_OUT_OF_MEMORY;                                            \
        int status = (call);                                                      \
        account_give(card, more);                                                 \
        settle(pool);                                                             \
        if (!status)                                                              \
            account_keep(ACCOUNT_BLOCK, *at,                                      \
                         (struct account_item){                                   \
                             .card = card, .bytes = table_rounded(bytes), .link = pool}); \
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

HOOK(cuMemFreeAsync)(uint64_t at, void *stream)
{
    FREE(at, REAL(cuMemFreeAsync)(at, stream));
}

HOOK(cuMemFreeAsync_ptsz)(uint64_t at, void *stream)
{
    FREE(at, REAL(cuMemFreeAsync_ptsz)(at, stream));
}

HOOK(cuMemPoolTrimTo)(uint64_t pool, size_t keep)
{
    int status = REAL(cuMemPoolTrimTo)(pool, keep);
    settle(pool);
    return status;
}

HOOK(cuMemPoolDestroy)(uint64_t pool)
{
    pthread_mutex_lock(&settling);
    uint64_t number = account_number(ACCOUNT_POOL, pool);
    int status = REAL(cuMemPoolDestroy)(pool);
    if (!status)
        account_drop_pool(pool, number);
    pthread_mutex_unlock(&settling);
    return status;
}

/* -- virtual memory management --------------------------------------------------------------- */

/* The link of a handle counts its references: handles and mappings. */
HOOK(cuMemCreate)(uint64_t *handle, size_t bytes, const struct properties *want,
                  unsigned long long flags)
{
    int card = card_at(want ? &want->location : NULL);
    uint64_t charge = table_rounded(bytes);
    if (!pools_take(card, charge))
        return CUDA_OUT_OF_MEMORY;
    int status = REAL(cuMemCreate)(handle, bytes, want, flags);
    if (status)
        account_give(card, charge);
    else
        account_keep(ACCOUNT_PHYSICAL, *handle,
                     (struct account_item){.card = card, .bytes = charge, .link = 1});
    return status;
}

HOOK(cuMemRelease)(uint64_t handle)
{
    uint64_t number = account_number(ACCOUNT_PHYSICAL, handle);
    int status = REAL(cuMemRelease)(handle);
    if (!status)
        account_let_go(handle, number);
    return status;
}

HOOK(cuMemRetainAllocationHandle)(uint64_t *handle, void *at)
{
    int status = REAL(cuMemRetainAllocationHandle)(handle, at);
    if (!status)
        account_hold(*handle);
    return status;
}

HOOK(cuMemMap)(uint64_t at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    int status = REAL(cuMemMap)(at, bytes, offset, handle, flags);
    if (!status)
        account_keep(ACCOUNT_MAPPING, at,
                     (struct account_item){.card = -1, .bytes = bytes, .link = handle,
                                           .of = account_hold(handle)});
    return status;
}

/* The range consists of whole mappings; the driver refuses holes and parts of mappings. */
HOOK(cuMemUnmap)(uint64_t at, size_t bytes)
{
    struct account_item gone;
    uint64_t key = at;
    int status = REAL(cuMemUnmap)(at, bytes);
    while (!status && key - at < bytes &&
           account_drop(ACCOUNT_MAPPING, key, account_number(ACCOUNT_MAPPING, key), &gone)) {
        account_let_go(gone.link, gone.of);
        key += gone.bytes;
    }
    return status;
}

/* -- graphs ---------------------------------------------------------------------------------- */

/* CUDA_MEM_ALLOC_NODE_PARAMS: pool properties of 88 bytes, two words, the size. */
struct node_parameters {
    struct properties properties;
    unsigned char more[72];
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
    return !want || !account_view(card_at(&want->properties.location), &cap, &used) ||
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

void pools_settle_graphs(int card)
{
    int device = 0;
    if (card >= 0 && !REAL(cuCtxGetDevice)(&device) && device >= 0 && device < MAX_DEVICES)
        settle_graphs(device, card);
}
