/* The allocations of this process: the bytes and the card of each address. */
#ifndef BALLAST_ACCOUNT_H
#define BALLAST_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_SUPPORTED = 801 };

/* The kind of an address or handle; each kind has its own key space. */
enum account_kind { ACCOUNT_BLOCK, ACCOUNT_POOL, ACCOUNT_PHYSICAL, ACCOUNT_MAPPING, ACCOUNT_CONTEXT };

/* Reserve bytes of a card; always true if the card has no cap (-1). Give back reserved bytes. */
bool account_take(int card, uint64_t bytes);
void account_give(int card, uint64_t bytes);

/* Charge every pool with its current size; called before a request is refused. */
void pools_settle(void);

/* The card of a key, or -1. */
int account_card(enum account_kind kind, uint64_t key);

/* Keep, and drop, the entry of a key. `link` is free for the caller. A block belongs to the
 * context that is current when it is kept. */
void account_keep(enum account_kind kind, uint64_t key, int card, uint64_t bytes, uint64_t link);
bool account_drop(enum account_kind kind, uint64_t key, int *card, uint64_t *bytes, uint64_t *link);

/* Charge a new context on a card, once: the driver takes its memory at once, and the arbiter
 * sees that only when it next looks. */
void account_add_context(uint64_t context, int card);

/* Give back a context and all its blocks: they are gone with it, without being freed. */
void account_drop_context(uint64_t context);

/* Add to the link of a key, which is created if missing; return the new value. */
uint64_t account_count(enum account_kind kind, uint64_t key, int64_t change);

/* Charge a key with exactly this many bytes: reserve the difference, even past the cap, or give
 * it back. */
void account_settle(enum account_kind kind, uint64_t key, int card, uint64_t bytes);

/* Cap and use of a card, of all processes and with all charges; false without a cap. */
bool account_view(int card, uint64_t *cap, uint64_t *used);

/* The lowest key of a kind that is at least `from`; false if there is none. */
bool account_lowest(enum account_kind kind, uint64_t from, uint64_t *key);

#endif
