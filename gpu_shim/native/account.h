/* The allocations of this process: the bytes and the card of each address. */
#ifndef BALLAST_ACCOUNT_H
#define BALLAST_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_SUPPORTED = 801 };

/* The kind of an address or handle; each kind has its own key space. */
enum account_kind { ACCOUNT_BLOCK, ACCOUNT_POOL, ACCOUNT_PHYSICAL, ACCOUNT_MAPPING, ACCOUNT_CONTEXT };

/* An entry. `link` is the pool of a block (the pool's charge includes the block), the references of a
 * handle, or the handle of a mapping; `of` is the context of a block, or the number of a mapping's
 * handle. */
struct account_item {
    int card;
    uint64_t bytes, link, of;
    uint64_t number; /* of the entry: no two of this process are the same */
};

/* After a fork: all entries are the parent's. */
void account_forget_all(void);

/* Reserve bytes of a card; always true if the card has no cap (-1). Give back reserved bytes. */
bool account_take(int card, uint64_t bytes);
void account_give(int card, uint64_t bytes);

/* Whether there is an entry, and its card. */
bool account_has(enum account_kind kind, uint64_t key, int *card);

/* Keep an entry without bytes, unless there is one. */
void account_note(enum account_kind kind, uint64_t key, int card);

/* Keep an entry; its bytes have been charged. An older entry with this key ended unseen, and is given
 * back. */
void account_keep(enum account_kind kind, uint64_t key, struct account_item item);

/* The driver gives out an address again before the call that freed it has returned. So a caller
 * reads the entry's number before the call, and drops the entry of that number afterwards. 0: none. */
uint64_t account_number(enum account_kind kind, uint64_t key);
bool account_drop(enum account_kind kind, uint64_t key, uint64_t number, struct account_item *gone);

/* Drop a pool that was destroyed: its blocks are charged one by one until they are freed. */
void account_drop_pool(uint64_t pool, uint64_t number);

/* Charge a new context on a card, once: the driver takes its memory at once, and the arbiter
 * sees that only when it next looks. */
void account_add_context(uint64_t context, int card);

/* Give back a context and all its blocks: they are gone with it, without being freed. */
void account_drop_context(uint64_t context);

/* One reference of a handle more, and one less, at the last of which it is given back. The first
 * returns the number of the handle's entry, which is created if missing. */
uint64_t account_hold(uint64_t handle);
void account_let_go(uint64_t handle, uint64_t number);

/* Charge a key with exactly this many bytes: reserve the difference, even past the cap, or give
 * it back. */
void account_settle(enum account_kind kind, uint64_t key, int card, uint64_t bytes);

/* Cap and use of a card, of all processes and with all charges; false without a cap. */
bool account_view(int card, uint64_t *cap, uint64_t *used);

/* The lowest key of a kind that is at least `from`; false if there is none. */
bool account_lowest(enum account_kind kind, uint64_t from, uint64_t *key);

#endif
