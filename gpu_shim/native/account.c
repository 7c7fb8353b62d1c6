/* A hash table with one lock, since allocations are not on the launch path. Its memory is
 * mapped, not allocated, because we may be called from within the program's own allocator.
 */
#define _GNU_SOURCE
#include "account.h"
#include "client.h"
#include "driver.h"
#include "names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct entry {
    uint64_t key;
    struct account_item item;
    uint8_t kind, state; /* 0 never used, 1 in use, 2 dropped */
};

static struct entry *entries;
static size_t n_entries, n_filled;
static uint64_t last_number;

static size_t place_of(enum account_kind kind, uint64_t key, size_t room)
{
    uint64_t hash = (key ^ (uint64_t)kind << 56) * UINT64_C(0x9e3779b97f4a7c15);
    /* The upper half: the lower bits of multiples of a large page are equal. */
    return (size_t)(hash >> 32) & (room - 1);
}

static struct entry *find(enum account_kind kind, uint64_t key)
{
    for (size_t i = 0, at = n_entries ? place_of(kind, key, n_entries) : 0; i < n_entries; i++) {
        struct entry *entry = &entries[(at + i) & (n_entries - 1)];
        if (!entry->state)
            return NULL;
        if (entry->state == 1 && entry->key == key && entry->kind == kind)
            return entry;
    }
    return NULL;
}

static struct entry *put(struct entry *to, size_t room, struct entry made)
{
    size_t at = place_of(made.kind, made.key, room);
    while (to[at].state == 1)
        at = (at + 1) & (room - 1);
    n_filled += !to[at].state;
    to[at] = made;
    return &to[at];
}

/* Rehash once the table is half full, to twice the size only if live entries, not dropped ones,
 * fill it. Without memory for it, new entries may not be kept. */
static bool make_room(void)
{
    size_t n_live = 0, room = n_entries ? n_entries : 4096;
    if (2 * (n_filled + 1) <= n_entries)
        return true;
    for (size_t i = 0; i < n_entries; i++)
        n_live += entries[i].state == 1;
    if (4 * (n_live + 1) > room)
        room *= 2;
    struct entry *more = mmap(NULL, room * sizeof *more, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED)
        return n_filled + 1 < n_entries;
    n_filled = 0;
    for (size_t i = 0; i < n_entries; i++) {
        if (entries[i].state == 1)
            put(more, room, entries[i]);
    }
    if (entries)
        munmap(entries, n_entries * sizeof *entries);
    entries = more;
    n_entries = room;
    return true;
}

static struct entry *add(enum account_kind kind, uint64_t key, struct account_item item)
{
    struct entry made = {.key = key, .item = item, .kind = (uint8_t)kind, .state = 1};
    made.item.number = ++last_number;
    return make_room() ? put(entries, n_entries, made) : NULL;
}

/* -- charges: callers hold the lock ---------------------------------------------------------- */

static void charge(int card, uint64_t bytes)
{
    table_charge(client.table, client.slot, card, bytes);
    client.charged[card] += bytes;
}

static void discharge(int card, uint64_t bytes)
{
    table_give_back(client.table, client.slot, card, bytes);
    client.charged[card] -= bytes;
}

/* Blocks from a pool are part of the pool's charge. */
static void give_back(const struct entry *entry)
{
    if (entry->item.card >= 0 && !(entry->kind == ACCOUNT_BLOCK && entry->item.link))
        discharge(entry->item.card, entry->item.bytes);
}

void account_forget_all(void)
{
    if (entries)
        munmap(entries, n_entries * sizeof *entries);
    entries = NULL;
    n_entries = n_filled = 0;
}

bool account_take(int card, uint64_t bytes)
{
    if (card < 0)
        return true;
    client_lock();
    bool fits = table_reserve(client.table, client.slot, card, bytes);
    if (fits)
        client.charged[card] += bytes;
    client_unlock();
    return fits;
}

bool account_has(enum account_kind kind, uint64_t key, int *card)
{
    client_lock();
    struct entry *entry = find(kind, key);
    if (entry)
        *card = entry->item.card;
    client_unlock();
    return entry != NULL;
}

void account_note(enum account_kind kind, uint64_t key, int card)
{
    client_lock();
    if (!find(kind, key))
        add(kind, key, (struct account_item){.card = card});
    client_unlock();
}

void account_give(int card, uint64_t bytes)
{
    if (card < 0)
        return;
    client_lock();
    discharge(card, bytes);
    client_unlock();
}

void account_keep(enum account_kind kind, uint64_t key, struct account_item item)
{
    void *context = NULL;
    if (kind == ACCOUNT_BLOCK && item.card >= 0 && !REAL(cuCtxGetCurrent)(&context))
        item.of = (uint64_t)(uintptr_t)context;
    client_lock();
    struct entry *before = find(kind, key);
    if (before) {
        give_back(before);
        before->state = 2;
    }
    add(kind, key, item);
    client_unlock();
}

uint64_t account_number(enum account_kind kind, uint64_t key)
{
    client_lock();
    struct entry *entry = find(kind, key);
    uint64_t number = entry ? entry->item.number : 0;
    client_unlock();
    return number;
}

static struct entry *find_numbered(enum account_kind kind, uint64_t key, uint64_t number)
{
    struct entry *entry = find(kind, key);
    return entry && entry->item.number == number ? entry : NULL;
}

bool account_drop(enum account_kind kind, uint64_t key, uint64_t number, struct account_item *gone)
{
    client_lock();
    struct entry *entry = find_numbered(kind, key, number);
    if (entry) {
        *gone = entry->item;
        entry->state = 2;
    }
    client_unlock();
    return entry != NULL;
}

void account_drop_pool(uint64_t pool, uint64_t number)
{
    client_lock();
    struct entry *entry = find_numbered(ACCOUNT_POOL, pool, number);
    for (size_t i = 0; entry && i < n_entries; i++) {
        struct entry *block = &entries[i];
        if (block->state != 1 || block->kind != ACCOUNT_BLOCK || block->item.link != pool)
            continue;
        block->item.link = block->item.of = 0;
        if (block->item.card >= 0)
            charge(block->item.card, block->item.bytes);
    }
    if (entry) {
        give_back(entry);
        entry->state = 2;
    }
    client_unlock();
}

void account_add_context(uint64_t context, int card)
{
    if (context && card >= 0)
        account_settle(ACCOUNT_CONTEXT, context, card, client.table->cards[card].context_bytes);
}

void account_drop_context(uint64_t context)
{
    client_lock();
    struct entry *entry = context ? find(ACCOUNT_CONTEXT, context) : NULL;
    if (entry) {
        give_back(entry);
        entry->state = 2;
    }
    for (size_t i = 0; context && i < n_entries; i++) {
        struct entry *block = &entries[i];
        /* Blocks from a pool belong to the pool, which outlives the context. */
        if (block->state != 1 || block->kind != ACCOUNT_BLOCK || block->item.of != context ||
            block->item.link)
            continue;
        give_back(block);
        block->state = 2;
    }
    client_unlock();
}

uint64_t account_hold(uint64_t handle)
{
    client_lock();
    struct entry *entry = find(ACCOUNT_PHYSICAL, handle);
    if (!entry)
        entry = add(ACCOUNT_PHYSICAL, handle, (struct account_item){.card = -1});
    uint64_t number = entry ? entry->item.number : 0;
    if (entry)
        entry->item.link++;
    client_unlock();
    return number;
}

void account_let_go(uint64_t handle, uint64_t number)
{
    client_lock();
    struct entry *entry = find_numbered(ACCOUNT_PHYSICAL, handle, number);
    if (entry && !--entry->item.link) {
        give_back(entry);
        entry->state = 2;
    }
    client_unlock();
}

void account_settle(enum account_kind kind, uint64_t key, int card, uint64_t bytes)
{
    if (card < 0)
        return;
    client_lock();
    struct entry *entry = find(kind, key);
    if (entry || (entry = add(kind, key, (struct account_item){.card = card}))) {
        if (bytes > entry->item.bytes)
            charge(card, bytes - entry->item.bytes);
        else if (bytes < entry->item.bytes)
            discharge(card, entry->item.bytes - bytes);
        entry->item.bytes = bytes;
    }
    client_unlock();
}

bool account_view(int card, uint64_t *cap, uint64_t *used)
{
    if (card < 0 || !client.table)
        return false;
    client_lock();
    *cap = client.table->cards[card].cap_bytes;
    *used = table_charged(client.table, card);
    client_unlock();
    return true;
}

bool account_lowest(enum account_kind kind, uint64_t from, uint64_t *key)
{
    bool is_found = false;
    client_lock();
    for (size_t i = 0; i < n_entries; i++) {
        struct entry *entry = &entries[i];
        bool fits = entry->state == 1 && entry->kind == kind && entry->key >= from;
        if (fits && (!is_found || entry->key < *key)) {
            *key = entry->key;
            is_found = true;
        }
    }
    client_unlock();
    return is_found;
}
